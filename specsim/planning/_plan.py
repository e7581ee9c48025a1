"""Choose γ and the draft: the expected speed-up, its uncertainty, and its sensitivity to α and c."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import scipy
from numpy.typing import ArrayLike

from specsim.core._plotting import COLORS, Axes, axes_or_new
from specsim.core._tables import CONFIDENCE, NONE, Line, Piece, Shown, Table, as_dict, bars
from specsim.core._types import Floats, check_between, check_count, checked
from specsim.planning._costs import MOST_GAMMA, ConstantRatio, StepCost
from specsim.traces._summary import Accepted

#: Sensitivity: α is shifted by this in both directions, c multiplied and divided by this.
ALPHA_SHIFT, C_SHIFT = 0.05, 1.5


@dataclass(frozen=True)
class Choice:
    """A γ: tokens per step, speed-up over the target alone, and operations per token relative to it."""

    gamma: int
    tokens_per_step: float
    improvement: float
    operations: float


@dataclass(frozen=True)
class Shift:
    """A shifted α or c: the best γ, its improvement, and the improvement of the planned γ."""

    what: str
    gamma: int
    improvement: float
    kept: float


@dataclass(frozen=True, eq=False)
class Plan(Shown):
    """The result of `plan`."""

    alphas: tuple[float, ...]  #: accepted / tested by position; the last holds for all later positions
    measured: int  #: the number of positions whose rate was given
    cost: StepCost
    best: Choice  #: γ = 0 means: do not speculate
    choices: tuple[Choice, ...]  #: for γ = 0, 1, …
    sensitivity: tuple[Shift, ...]  #: for shifted α and c
    meaning: str = ""  #: what α comes from
    listed = "choices"

    @property
    def verdict(self) -> str:
        """The best γ, and beside one beyond the log the best within it."""
        best = self.best
        if not best.gamma:
            return "Do not speculate: no γ gains, since α does not exceed c."
        fast = f"{best.improvement:.4f} times as fast as the target alone"
        text = f"γ = {best.gamma}: {fast}, with {best.operations:.4f} times its operations"
        logged = _best(self.choices[: self.measured + 1])
        beyond = f"; it lies beyond the log, whose best is γ = {logged.gamma}: {logged.improvement:.4f}"
        return text + beyond * (best.gamma > self.measured)

    def to_dict(self) -> dict[str, Any]:
        return as_dict(self, cost=str(self.cost))

    def parts(self) -> Iterator[Piece]:
        best, shown = self.best, self.choices[: self.best.gamma + 4]
        yield Line(self.verdict, "bold")
        rows = []
        for choice, bar in zip(shown, bars([choice.improvement for choice in shown]), strict=True):
            numbers = (choice.tokens_per_step, choice.improvement, choice.operations)
            notes = ["best"] * (choice == best) + ["beyond the log"] * (choice.gamma > self.measured)
            rows.append((choice.gamma, *map("{:.4f}".format, numbers), bar, ", ".join(notes)))
        yield Table(("γ", "tokens/step", "improvement", "operations", "", ""), rows, bold=[best.gamma])
        yield Table(
            ("if", "best γ", "improvement", f"with γ = {best.gamma}"),
            [(one.what, one.gamma, f"{one.improvement:.4f}", f"{one.kept:.4f}") for one in self.sensitivity],
        )
        alphas = ", ".join(f"{one:.4g}" for one in self.alphas)
        yield self.meaning or f"α {alphas}: accepted / tested tokens"

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the speed-up against γ and its range for α ± 0.05; the best γ is marked."""
        ax, best, last = axes_or_new(ax), self.best, min(2 * self.best.gamma + 4, len(self.choices) - 1)
        gains = np.array([choice.improvement for choice in self.choices[: last + 1]])
        low, high = (
            [choice.improvement for choice in _choices(rates, self.cost, 0.0, last)]
            for rates in _shifted(np.array(self.alphas))
        )
        ax.fill_between(range(last + 1), low, high, color="0.88", label=f"α ± {ALPHA_SHIFT:g}")
        known = min(self.measured, last)
        ax.plot(gains[: known + 1], "o-", color=COLORS[0], label="speed-up over the target alone")
        if known < last:
            ax.plot(range(known, last + 1), gains[known:], ":", color=COLORS[0], label="beyond the log")
        ax.locator_params(axis="x", integer=True)
        return name_best(ax, best.gamma, best.improvement)


def name_best(ax: Axes, gamma: int, gain: float) -> Axes:
    """Mark the best γ in a picture of speed-ups, with the line below which a step is slower."""
    said = f"best γ = {gamma}: {gain:.4g} times as fast" if gamma else "best: do not speculate"
    ax.plot(gamma, gain, "D", color=COLORS[2], markersize=7, zorder=3, label=said)
    ax.axhline(1.0, color="0.6", linewidth=0.8)
    ax.set(xlabel="drafted tokens γ", ylabel="speed-up")
    ax.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2)
    return ax


@checked
def plan(alpha: ArrayLike, c: float, c_hat: float | None = None, *, max_gamma: int = 64) -> Plan:
    """The γ with the largest speed-up, if verifying γ + 1 tokens takes one pass of the target.

    Parameters
    ----------
    alpha : float or array_like, shape [k]
        Accepted / tested tokens: one rate, or those of the first k positions, each of the steps that accepted
        all before; the last one holds for later positions. In [0, 1]. `specsim.planning.alpha_of`
        converts numbers as engines print them.
    c, c_hat : float
        The ratios draft/target of times and of operations, ≥ 0; `c_hat` is `c` by default.
    max_gamma : int
        The largest γ to consider, ≥ 1.

    Returns
    -------
    Plan

    Raises
    ------
    ValueError
        For arguments out of range.

    References
    ----------
    Leviathan, Kalman & Matias, arXiv 2211.17192, Theorems 3.8 and 3.11.

    Examples
    --------
    >>> found = plan(0.8, 0.05)
    >>> found.best.gamma, round(found.best.improvement, 4)
    (8, 3.0921)
    """
    alphas = rates_to(alpha)
    check_count("max_gamma", max_gamma, most=MOST_GAMMA)
    if c_hat is not None:
        check_between("c_hat", c_hat, 0.0, math.inf, "ratio")
    cost = ConstantRatio(c)
    choices = _choices(alphas, cost, ConstantRatio(c if c_hat is None else c_hat).c, max_gamma)
    best = _best(choices)
    return Plan(
        alphas=tuple(alphas.tolist()),
        measured=len(alphas) if np.ndim(alpha) else max_gamma,
        cost=cost,
        best=best,
        choices=tuple(choices),
        sensitivity=tuple(_sensitivity(alphas, cost, best.gamma, max_gamma)),
    )


def rates_to(alpha: ArrayLike, gamma: int = 0) -> Floats:
    """Rates by position, the last one also for later ones up to `gamma`. Raises ValueError for others."""
    rates = np.atleast_1d(np.asarray(alpha, dtype=np.float64))
    if rates.ndim != 1 or not rates.size:
        raise ValueError(f"alpha: shape {rates.shape}; give one rate, or one for each position")
    for rate in rates.tolist():
        check_between("alpha", rate, 0.0, 1.0, "probability")
    return rates[np.minimum(np.arange(gamma or len(rates)), len(rates) - 1)]


def tokens_to(alpha: ArrayLike, gamma: int) -> Floats:
    """[γ] expected tokens of steps of 1, 2, … `gamma` drafted tokens."""
    return 1.0 + np.cumsum(np.cumprod(rates_to(alpha, gamma)))


def _choices(alphas: Floats, cost: StepCost, c_hat: float, max_gamma: int) -> list[Choice]:
    return [
        Choice(gamma, float(n), float(n) / cost.step(gamma), (gamma * c_hat + gamma + 1) / float(n))
        for gamma, n in enumerate(np.concatenate([[1.0], tokens_to(alphas, max_gamma)]))
    ]


def _best(choices: Sequence[Choice]) -> Choice:
    return max(choices, key=lambda choice: choice.improvement)


def _shifted(alphas: Floats) -> list[Floats]:
    """The rates less, and plus, the shift."""
    return [np.clip(alphas + shift, 0.0, 1.0) for shift in (-ALPHA_SHIFT, ALPHA_SHIFT)]


def _sensitivity(alphas: Floats, cost: ConstantRatio, gamma: int, max_gamma: int) -> list[Shift]:
    found, (less, more) = [], _shifted(alphas)
    for what, rates, c in (
        (f"α -{ALPHA_SHIFT:g}", less, cost.c),
        (f"α +{ALPHA_SHIFT:g}", more, cost.c),
        (f"c /{C_SHIFT:g}", alphas, cost.c * C_SHIFT**-1),
        (f"c ·{C_SHIFT:g}", alphas, cost.c * C_SHIFT),
    ):
        choices = _choices(rates, ConstantRatio(c), c, max_gamma)
        best = _best(choices)
        found.append(Shift(what, best.gamma, best.improvement, choices[gamma].improvement))
    return found


@dataclass(frozen=True)
class Candidate:
    """A draft: accepted / tested tokens, with the interval from `low` to `high`, and its time ratio c."""

    name: str
    alpha: float
    c: float
    low: float
    high: float

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise TypeError(f"name: expected str, got {type(self.name).__name__}")
        ConstantRatio(self.c)  # for its check
        if not 0 <= self.low <= self.alpha <= self.high <= 1:
            interval = f"α = {self.alpha:g} in [{self.low:g}, {self.high:g}]"
            raise ValueError(f"{self.name}: {interval} is outside [0, 1]; give 0 ≤ low ≤ α ≤ high ≤ 1")

    @classmethod
    @checked
    def of_rate(cls, name: str, alpha: float, c: float) -> "Candidate":
        """From a rate without uncertainty."""
        return cls(name, alpha, c, alpha, alpha)

    @classmethod
    @checked
    def of_counts(cls, name: str, accepted: int, tested: int, c: float) -> "Candidate":
        """From accepted and tested counts, with Wilson's interval for independent tests."""
        if check_count("accepted", accepted, 0) > check_count("tested", tested, 0) or tested == 0:
            raise ValueError(f"{name}: {accepted} accepted of {tested} tested tokens; give at least one")
        interval = scipy.stats.binomtest(accepted, tested).proportion_ci(CONFIDENCE, method="wilson")
        return cls(name, accepted / tested, c, float(interval.low), float(interval.high))

    @classmethod
    def of_trace(cls, name: str, summary: Accepted, c: float) -> "Candidate":
        """From a trace: accepted / tested, with an interval for independent steps."""
        error, alpha = summary.standard_errors["alpha_verified"], summary.alpha_verified
        reach = float(scipy.stats.norm.ppf(0.5 + CONFIDENCE / 2)) * error if math.isfinite(error) else 1.0
        return cls(name, alpha, c, max(alpha - reach, 0.0), min(alpha + reach, 1.0))


@dataclass(frozen=True)
class Ranked:
    """A candidate at its best γ: improvement, interval, and whether it lies below the first one's."""

    candidate: Candidate
    gamma: int
    improvement: float
    low: float
    high: float
    surely_worse: bool


class Ranking(Shown, tuple[Ranked, ...]):
    """Candidates by expected improvement, the best first."""

    __slots__ = ()

    @property
    def verdict(self) -> str:
        """The fastest draft, and what cannot be told from it."""
        first, *others = self
        if max(one.high for one in self) <= 1.0:
            return "Do not speculate: no draft is faster than none."
        fast = f"{first.improvement:.4f} times as fast as the target alone"
        found = f"{first.candidate.name}, with γ = {first.gamma}: {fast}"
        alike = [one.candidate.name for one in others if not one.surely_worse] + ["none"] * (first.low <= 1.0)
        if alike:
            return f"{found}; the data do not tell it from {', '.join(alike)}: give more of them"
        return found + "; every other draft is slower" * bool(others)

    def parts(self) -> list[Piece]:
        rows = []
        for one, bar in zip(self, bars([one.improvement for one in self]), strict=True):
            draft, uncertain = one.candidate, one.low < one.high
            known = draft.name, f"{draft.alpha:.4f}", f"{draft.c:g}", one.gamma, f"{one.improvement:.4f}"
            interval = f"{one.low:.4f} – {one.high:.4f}" if uncertain else NONE
            rows.append((*known, interval, bar, "surely worse" if one.surely_worse and uncertain else ""))
        names = ("draft", "α", "c", "best γ", "improvement", "interval", "", "")
        tested = "α: accepted / tested tokens; if an engine printed it: acceptance-rate:RATE,gamma=DRAFTED"
        return [Line(self.verdict, "bold"), Table(names, rows), tested]

    def records(self) -> list[dict[str, Any]]:
        """A row for each candidate."""
        return [asdict(one.candidate) | as_dict(one, without=("candidate",)) for one in self]


@checked
def rank_drafts(candidates: Sequence[Candidate], *, max_gamma: int = 64) -> Ranking:
    """Rank drafts by expected improvement, each at its best γ.

    Parameters
    ----------
    candidates : sequence of Candidate
        At least one, each with a name of its own.
    max_gamma : int
        The largest γ to consider, ≥ 1.

    Returns
    -------
    Ranking
        The best first, with the interval of α at the best γ. A draft is surely worse if its interval lies
        below the first one's.

    Raises
    ------
    ValueError
        For no candidate, two of one name, or `max_gamma` out of range.

    Examples
    --------
    >>> found = rank_drafts([Candidate.of_rate("small", 0.75, 0.02), Candidate.of_rate("large", 0.82, 0.11)])
    >>> [(one.candidate.name, one.gamma, round(one.improvement, 2)) for one in found]
    [('small', 9, 3.2), ('large', 6, 2.51)]
    """
    names = [candidate.name for candidate in candidates]
    if not names or len(set(names)) < len(names):
        raise ValueError(f"candidates: {names or 'none'}; give at least one, each with a name of its own")
    found = []
    for one in candidates:
        best = plan(one.alpha, one.c, max_gamma=max_gamma).best
        plans = (plan(alpha, one.c, max_gamma=max_gamma) for alpha in (one.low, one.high))
        low, high = (made.choices[best.gamma].improvement for made in plans)
        found.append(Ranked(one, best.gamma, best.improvement, low, high, False))
    found.sort(key=lambda one: -one.improvement)
    return Ranking(replace(one, surely_worse=one.high < found[0].low) for one in found)
