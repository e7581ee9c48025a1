"""A generated text, and what its steps did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from specsim.core._provenance import Provenance
from specsim.core._tables import NONE, Piece, Shown, Table, as_dict
from specsim.drafts import Tree

__all__ = ["Generation", "Step"]


class Step(NamedTuple):
    """One iteration: tokens drafted, the most of them that it could accept (the draft's depth), and accepted."""

    drafted: int
    depth: int
    accepted: int


@dataclass(frozen=True)
class Generation(Shown):
    """The new `tokens` after `prompt`, and the steps that made them.

    Every iteration is one pass of the target and emits the accepted tokens and one more; `dropped` of these came
    after the end of the text. So tokens = accepted + iterations - dropped. `rule` and `tree` are None for the target
    sampled alone. `seconds` are those spent in the draft, in the target and in verification.
    """

    prompt: tuple[int, ...] = field(repr=False)
    tokens: tuple[int, ...]
    rule: str | None
    tree: Tree | None
    drafting: str
    steps: tuple[Step, ...] = field(repr=False)
    seconds: dict[str, float] = field(repr=False)
    provenance: Provenance = field(repr=False)

    @property
    def iterations(self) -> int:
        """Steps, each with one pass of the target."""
        return len(self.steps)

    @property
    def drafted(self) -> int:
        """Drafted tokens in all."""
        return sum(step.drafted for step in self.steps)

    @property
    def accepted(self) -> int:
        """Drafted tokens accepted in all, with those behind the end of the text."""
        return sum(step.accepted for step in self.steps)

    @property
    def rejected(self) -> int:
        """Steps that ended with a rejection, at which a recovered token came out."""
        return sum(step.accepted < step.depth for step in self.steps)

    @property
    def bonus(self) -> int:
        """Steps that accepted as much as was drafted, and so emitted a bonus; those without a draft do not count."""
        return sum(step.accepted == step.depth > 0 for step in self.steps)

    @property
    def dropped(self) -> int:
        """Tokens emitted behind the end of the text."""
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
        """Accepted / positions tested: in each step the accepted ones and the rejected one; None where there are none."""
        tested = self.accepted + self.rejected
        return self.accepted / tested if tested else None

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain Python values, for JSON."""
        derived = (
            "iterations",
            "drafted",
            "accepted",
            "rejected",
            "bonus",
            "dropped",
            "tokens_per_iteration",
        )
        return as_dict(self, *derived, "alpha_drafted", "alpha_verified", without=("tree",), draft=self.tree)

    def table(self) -> Mapping[str, str]:
        """The numbers as they are shown: {name: value}."""
        rows = {
            "rule": self.rule or "none: the target alone",
            "draft": "none"
            if self.tree is None
            else str(self.tree) + (", greedy" if self.drafting == "greedy" else ""),
            "new tokens": f"{len(self.tokens):,}",
            "iterations": f"{self.iterations:,}",
            "tokens per iteration": f"{self.tokens_per_iteration:.3f}",
        }
        if self.tree is not None:
            rows |= {
                "drafted": f"{self.drafted:,}",
                "accepted": f"{self.accepted:,}",
                "rejected": f"{self.rejected:,}",
                "bonus": f"{self.bonus:,}",
                "α drafted": _rate(self.alpha_drafted),
                "α verified": _rate(self.alpha_verified),
            }
        return rows | {"seconds": ", ".join(f"{part} {spent:.3f}" for part, spent in self.seconds.items())}

    def parts(self) -> list[Piece]:
        return [Table((), [*self.table().items()])]

    def records(self) -> list[dict[str, Any]]:
        """A row for each step."""
        return [step._asdict() for step in self.steps]


def _rate(value: float | None) -> str:
    return NONE if value is None else f"{value:.4f}"
