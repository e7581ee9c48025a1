"""The result of a simulation."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from specsim.core import stats as statistics
from specsim.core._plotting import Axes, axes_or_new, lengths_plot
from specsim.core._provenance import Provenance
from specsim.core._saving import decoded
from specsim.core._tables import Line, Piece, Shown, Table, as_dict, bars
from specsim.core._types import Ints
from specsim.models import DynamicTree, Pair, Tree
from specsim.models._drafts.dynamic import Draft
from specsim.simulation._checkpoints import Part
from specsim.simulation._counting import Partial, missing
from specsim.simulation._sources import accepted_law_by_position
from specsim.theory import accepted_law, expected_tokens_by_position
from specsim.theory._acceptance import rates, with_error

#: The name of the counts of a simulation in its checkpoints.
STEPS = "steps"


@dataclass(frozen=True, eq=False)
class Simulation(Shown):
    """The counts of a simulated run, and the rates that follow from them.

    `lengths[k]` steps accepted k tokens; `tokens[x]` is how often the token x was emitted. `alpha_context` is
    the mean acceptance probability of the standard rule over the contexts where steps begin, and
    `acceptance[i]` the probability that this rule accepts the token at i, given that those before it were:
    both are exact. `acceptance` is None where no closed form is known. Where drafts vary in length, `drafted`
    counts their tokens, and `ended[k]` the steps whose draft of k tokens was accepted whole. `source`, `pair`
    and `tree` are the origin of p and q, themselves, and the draft's shape."""

    source: str
    rule: str
    tree: Draft
    steps: int
    lengths: Ints = field(repr=False)
    tokens: Ints = field(repr=False)
    alpha_context: float
    planned: int  #: steps; fewer were drawn if the run was `interrupted`
    pair: Pair
    provenance: Provenance = field(repr=False)
    acceptance: tuple[float, ...] | None = field(default=None, repr=False)
    method: str | None = None  #: the drafting system, if one was named
    shard: tuple[int, int] | None = None  #: the part (i, n) of a run
    drafted: int | None = field(default=None, repr=False)
    ended: Ints | None = field(default=None, repr=False)

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended the run before all its steps."""
        return self.steps < self.planned

    @property
    def gamma(self) -> int:
        """The tokens that a step accepts at most: γ of a chain, the depth of a tree."""
        return self.tree.depth

    @property
    def accepted(self) -> int:
        """The number of accepted drafted tokens."""
        return statistics.accepted_tokens(self.lengths)

    @property
    def alpha_drafted(self) -> float:
        """Accepted / drafted tokens, as engines report it."""
        size = self.tree.size if self.drafted is None else self.drafted / self.steps
        return statistics.alpha_drafted(self.lengths, size)

    @property
    def alpha_verified(self) -> float:
        """Accepted / tested tokens: each step tests the accepted tokens and the rejected one."""
        return statistics.alpha_verified(self.lengths, self.ended)

    @property
    def tokens_per_step(self) -> float:
        """Mean number of tokens that a step emits, in [1, γ+1]."""
        return statistics.mean_tokens(self.lengths)[0]

    @property
    def tokens_per_step_error(self) -> float:
        """Standard error of `tokens_per_step`."""
        return statistics.mean_tokens(self.lengths)[1]

    @property
    def expected_tokens(self) -> float | None:
        """The closed form of `tokens_per_step`, from `acceptance`."""
        return None if self.acceptance is None else float(expected_tokens_by_position(self.acceptance))

    @property
    def _has_formula(self) -> bool:
        """Whether the formula of i.i.d. acceptances with probability α holds for this rule and shape."""
        return self.rule == "standard" and self.tree.is_chain and self.tree.draft_sampling == "sampled"

    @property
    def alpha_verified_error(self) -> float:
        """Standard error of `alpha_verified`, for independent steps."""
        return statistics.alpha_verified_error(self.lengths, self.ended)

    def to_dict(self) -> dict[str, Any]:
        derived = ("gamma", "alpha_verified", "alpha_verified_error", "alpha_drafted")
        means = ("tokens_per_step", "tokens_per_step_error", "expected_tokens", "interrupted")
        return as_dict(self, *derived, *means, without=("tree",), draft=self.tree)

    def parts(self) -> Iterator[Piece]:
        how = "" if self.method is None else f"{self.method}: "
        drawn = f"{self.steps:,} steps, seed {self.provenance.root}{self._part}"
        yield f"{how}{self.source}, rule {self.rule}, {self.tree}: {drawn}"
        if self.interrupted:
            yield self._interruption()
        errors = {"tokens_per_step": self.tokens_per_step_error, "alpha_verified": self.alpha_verified_error}
        yield rates(self, self.gamma if self._has_formula else None, errors, self.expected_tokens)
        shares = [row["share"] for row in self.records()]
        shown = zip(map("{:.4f}".format, shares), bars(shares), strict=True)
        yield Table(("accepted", "share of steps", ""), [(k, *row) for k, row in enumerate(shown)])

    def brief(self) -> Iterator[Piece]:
        mean = with_error(self.tokens_per_step, self.tokens_per_step_error)
        how = self.method or f"{self.rule}, {self.tree}"
        yield f"{mean} tokens per step of {how}, on {self.pair.name or self.source}"
        if self.interrupted:
            yield self._interruption()
        verified = with_error(self.alpha_verified, self.alpha_verified_error)
        yield f"α context {self.alpha_context:.5f}, verified {verified}, drafted {self.alpha_drafted:.5f}"
        about = self.provenance
        yield f"{self.steps:,} steps, seed {about.root}{self._part}, specsim {about.specsim}"

    @property
    def _part(self) -> str:
        return "" if self.shard is None else ", part {}/{} of a run".format(*self.shard)

    def _interruption(self) -> Line:
        return Line(f"interrupted after {self.steps:,} of {self.planned:,} steps", "bold yellow")

    def records(self) -> list[dict[str, Any]]:
        """A row for each number of accepted tokens: steps, and their share."""
        counts = enumerate(self.lengths.tolist())
        return [{"accepted": k, "steps": n, "share": n / self.steps} for k, n in counts]

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the share of steps by number of emitted tokens, with the closed form if there is one.

        For the standard rule on a chain that is the one of i.i.d. acceptances, also where rows change."""
        laws = {}
        if self._has_formula:
            laws["i.i.d., α context"] = accepted_law(self.alpha_context, self.gamma)
        elif self.acceptance is not None:
            laws["closed form"] = accepted_law_by_position(self.acceptance)
        return lengths_plot(axes_or_new(ax), self.lengths, laws)


def counts_of(total: Partial) -> dict[str, Any]:
    lengths, tokens = total.counts["lengths"], total.counts["tokens"].sum(axis=0)[1:]
    found = {"steps": total.steps, "lengths": lengths, "tokens": tokens}
    if "ended" in total.counts:
        found |= {"ended": total.counts["ended"], "drafted": int(total.counts["drafted"][0])}
    return found


def merge_simulation(part: Part) -> Simulation:
    """The run whose parts add up to `part`. Raises ValueError, with the steps that are missing."""
    run, total, drafted = part.run, part.found.get(STEPS, Partial({})), part.run["draft"]
    if gaps := missing(total.intervals, 0, run["steps"]):
        shown = ", ".join(f"{first:,} to {end - 1:,}" for first, end in gaps[:8]) + ", …" * (len(gaps) > 8)
        lost = f"{sum(end - first for first, end in gaps):,} of {run['steps']:,} steps are missing"
        raise ValueError(f"paths: {lost} ({shown}); add the parts with these steps, or finish them")
    tree: Draft
    if "parents" in drafted:
        tree = Tree(drafted["parents"], drafted["draft_sampling"], drafted["block"])
    else:
        tree = DynamicTree(drafted["width"], drafted["depth"], drafted["nodes"])
    about = part.about
    alpha_context, acceptance = decoded(about["exact"])
    return Simulation(
        run["source"],
        run["rule"],
        tree,
        **counts_of(total),
        alpha_context=alpha_context,
        acceptance=acceptance,
        planned=run["steps"],
        method=about["method"],
        pair=replace(decoded(about["pair"]), sha256=run["p and q"]),
        provenance=Provenance.record(run["seed"], about["threads"], total.seconds, about["device"]),
    )
