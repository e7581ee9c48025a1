"""A generated text and the statistics of its steps."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from specsim.core._provenance import Provenance
from specsim.core._tables import NONE, Line, Piece, Shown, Table, as_dict
from specsim.models._drafts.dynamic import Draft


class Step(NamedTuple):
    """One iteration: tokens drafted, the draft's depth (the most it could accept), and tokens accepted."""

    drafted: int
    depth: int
    accepted: int


@dataclass(frozen=True, eq=False)
class Generation(Shown):
    """The new `tokens` after `prompt`, and the steps that emitted them.

    Every iteration is one pass of the target and emits the accepted tokens and one more; `dropped` of these
    came after the end of the text, so tokens = accepted + iterations - dropped. `rule` and `tree` are None
    for the target sampled alone.

    Examples
    --------
    >>> from specsim import default_pair, generate
    >>> text = generate(*default_pair(), b"import ", max_new_tokens=8, gamma=3, rng=1)
    >>> len(text.tokens) == text.accepted + text.iterations - text.dropped
    True
    """

    prompt: tuple[int, ...] = field(repr=False)
    tokens: tuple[int, ...]
    rule: str | None
    tree: Draft | None
    drafting: str  #: a key of `DRAFTINGS`, or "none"
    steps: tuple[Step, ...] = field(repr=False)
    seconds: dict[str, float] = field(repr=False)  #: spent in "draft", "target" and "verify"
    provenance: Provenance = field(repr=False)
    interrupted: bool = False  #: whether Ctrl-C ended the text
    method: str | None = None  #: the drafting system, if one was named
    listed = "steps"
    derived = (
        "iterations", "drafted", "accepted", "rejected", "bonus", "dropped",
        "tokens_per_iteration", "alpha_drafted", "alpha_verified",
    )  # fmt: skip

    @property
    def iterations(self) -> int:
        """Steps, each with one pass of the target."""
        return len(self.steps)

    @property
    def drafted(self) -> int:
        return sum(step.drafted for step in self.steps)

    @property
    def accepted(self) -> int:
        """Drafted tokens accepted in all, those after the end of the text included."""
        return sum(step.accepted for step in self.steps)

    @property
    def rejected(self) -> int:
        """Steps that ended with a rejection and so emitted a recovered token."""
        return sum(step.accepted < step.depth for step in self.steps)

    @property
    def bonus(self) -> int:
        """Steps that accepted their whole draft and so emitted a bonus; steps with no draft do not count."""
        return sum(step.accepted == step.depth > 0 for step in self.steps)

    @property
    def dropped(self) -> int:
        """Tokens emitted after the end of the text."""
        return self.accepted + self.iterations - len(self.tokens)

    @property
    def tokens_per_iteration(self) -> float:
        """New tokens for each pass of the target."""
        return len(self.tokens) / self.iterations

    @property
    def alpha_drafted(self) -> float | None:
        """Accepted / drafted, which engines report; None where nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else None

    @property
    def alpha_verified(self) -> float | None:
        """Accepted / tested, the tested tokens being the accepted and the rejected ones; None without any."""
        tested = self.accepted + self.rejected
        return self.accepted / tested if tested else None

    def to_dict(self) -> dict[str, Any]:
        return as_dict(self, *self.derived, without=("tree",), draft=self.tree)

    def table(self) -> Mapping[str, str]:
        """The numbers as text, by name."""
        draft = "none" if self.tree is None else str(self.tree)
        rows = {} if self.method is None else {"method": self.method}
        rows |= {
            "rule": self.rule or "none: the target alone",
            "draft": draft + (", greedy" if self.drafting == "greedy" else ""),
            "new tokens": f"{len(self.tokens):,}",
            "iterations": f"{self.iterations:,}",
            "tokens per iteration": f"{self.tokens_per_iteration:.3f}",
        }
        if self.tree is not None:
            counted = ("drafted", "accepted", "rejected", "bonus")
            rows |= {name: f"{getattr(self, name):,}" for name in counted}
            rates = {"α drafted": self.alpha_drafted, "α verified": self.alpha_verified}
            rows |= {name: NONE if rate is None else f"{rate:.4f}" for name, rate in rates.items()}
        return rows | {"seconds": ", ".join(f"{part} {spent:.3f}" for part, spent in self.seconds.items())}

    def parts(self) -> list[Piece]:
        ended = [Line("interrupted: the text so far", "bold yellow")] * self.interrupted
        return [Table((), [*self.table().items()]), *ended]
