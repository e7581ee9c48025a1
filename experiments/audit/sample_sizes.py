"""The steps that an audit needs for each known mistake, beside those of the most powerful test.

The most powerful test (Neyman and Pearson) knows the mistake, and rejects for a large likelihood ratio of its
distribution to the claimed one. For each mistake of known distribution that needs statistics at all, its
number of steps is computed from the prefix tables of an audit, at the whole error budget, in the case where
the Kullback-Leibler divergence of a step's tokens from the claim is largest: likelihood ratios L are drawn
from the distribution of the mistake, the test rejects above the quantile that gives the power, and its
false-alarm probability is the mean of 1/L above that quantile. Then counts of those tables are drawn from the
same distribution: the audit needs the steps with which the logarithm of its largest e-value, of a table or of
the tables together, is above the alarm with the same power, by its mean and standard deviation.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from experiments import Floats, Ints, Row
from experiments._pages import markdown_table, written
from experiments.audit._step_laws import Known, alarm, known_law, subject_of
from specsim import mistakes
from specsim.auditing._checks.subjects import Subject
from specsim.auditing._checks.tables import Joined, interim_looks
from specsim.auditing._results.audit import BUDGET
from specsim.core.stats import POWER

TITLE = "The steps that an audit needs for each known mistake, beside those of the most powerful test"
MINUTES = 5

#: Draws of the counts at each number of steps, and the precision of the ratio of both numbers.
DRAWS, FAST_DRAWS, PRECISION = 200, 40, 1.03
#: Draws of the likelihood ratio; one of a thousand is below the quantile.
RATIOS, FAST_RATIOS = 100_000, 20_000
#: The largest ratio that is looked for.
MOST = 50.0
#: Probability of a step that rejects at once from which on no statistics are needed.
FATAL = 1e-6
#: Divergence of rounding, not of a distribution.
LEAST_DIVERGENCE = 1e-12
FAST_MISTAKES = ("resamples_target", "bonus_argmax")
#: The ratio that is aimed at.
GOAL = 2.5


def cells(*, fast: bool) -> list[tuple[str]]:
    """The mistakes of verifiers whose distribution is known."""
    known = [one.name for one in mistakes.catalogue() if one.verify is not None and one.law is not None]
    return [(name,) for name in known if not fast or name in FAST_MISTAKES]


def run_cell(cell: tuple[str], *, fast: bool, rng: int) -> Row:
    """The case, the divergence per step, and both numbers of steps.

    All but the name are None where a step rejects at once in some case, or the distribution shows in no
    table. `first_look` is the number of steps at which an audit at level quick first looks at that case."""
    mistake = mistakes.get(cell[0])
    subject = subject_of(mistake)
    level = alarm(subject, "quick")
    shown = [one for i in range(len(subject.cases)) if (one := _shown(mistake, subject, i)) is not None]
    fatal = any(one.fatal > FATAL for one in shown)
    best = None if fatal else max(shown, key=lambda one: one.divergence, default=None)
    if best is None or best.divergence < LEAST_DIVERGENCE:
        return {"mistake": mistake.name} | dict.fromkeys(
            ("case", "divergence", "most_powerful", "audit", "ratio", "first_look")
        )
    generator = np.random.default_rng(rng)
    least = _least(best, FAST_RATIOS if fast else RATIOS, generator)
    needed = _needed(best, level, least, FAST_DRAWS if fast else DRAWS, generator)
    return {
        "mistake": mistake.name,
        "case": best.known.case,
        "divergence": best.divergence,
        "most_powerful": least,
        "audit": needed,
        "ratio": needed / least,
        "first_look": best.first_look,
    }


@dataclass(frozen=True)
class _Shown:
    """A case in which the distribution of the mistake is known, with the tables that it shows in."""

    known: Known
    tables: Joined
    first_look: int

    @property
    def fatal(self) -> float:
        return float(self.known.law[self.known.fatal].sum())

    @property
    def divergence(self) -> float:
        """Of the tokens of one step, in the cells of the tables, each given the tokens before it."""
        rates = self.known.prefixes(self.known.law[:, None])[:, 0]
        total = 0.0
        for table in self.tables.tables:
            visits = table.merged(rates)
            if visits.any():
                total += float(scipy.special.rel_entr(visits, visits.sum() * table.law).sum())
        return total

    @property
    def log_ratios(self) -> Floats:
        """[sequences], log of the probability of its tokens under the mistake over that of the claim."""
        rates = self._merged(self.known.law[:, None])[0]
        sums = np.add.reduceat(rates, self.tables.starts)
        sizes = np.diff([*self.tables.starts, len(rates)])
        claimed = np.repeat(sums, sizes) * self.tables.law
        each = np.log(np.divide(rates, claimed, out=np.ones_like(rates), where=(rates > 0) & (claimed > 0)))
        found: Floats = self._merged(np.eye(len(self.known.law))) @ each
        return found

    def _merged(self, outcomes: NDArray[Any]) -> Any:
        """[n, cells], of n columns of probabilities or counts of the sequences."""
        return self.tables.merged({"prefixes": self.known.prefixes(outcomes)})


def _shown(mistake: mistakes.Mistake, subject: Subject, index: int) -> _Shown | None:
    known, plan = known_law(mistake, subject.cases[index]), subject.plan(index, "quick")
    tables = [table for table in plan.pooled.tables if table.kind == "prefix"] if known else []
    return _Shown(known, Joined(tables), interim_looks(plan.steps)[0]) if known and tables else None


def _least(shown: _Shown, draws: int, rng: np.random.Generator) -> float:
    """The steps of the most powerful test at the whole budget."""
    values, which = np.unique(shown.log_ratios.round(12), return_inverse=True)
    law = np.bincount(which, weights=shown.known.law)

    def rejects(steps: float) -> bool:
        ratios = rng.multinomial(int(steps), law, size=draws) @ values
        above = ratios[ratios >= np.quantile(ratios, 1.0 - POWER, method="lower")]
        return bool(np.exp(-above).sum() / draws <= BUDGET)

    # where the logarithm of the ratio is nearly normal
    normal = (scipy.special.ndtri(1.0 - BUDGET) + scipy.special.ndtri(POWER)) ** 2 / (2.0 * shown.divergence)
    return _fewest(rejects, normal)


def _needed(shown: _Shown, level: float, least: float, draws: int, rng: np.random.Generator) -> float:
    """The steps of an audit, at false-alarm probability `level` of each test; infinite beyond `MOST`."""

    def rejects(steps: float) -> bool:
        largest = _largest_log_e(shown, rng.multinomial(int(steps), shown.known.law, size=draws))
        return bool(largest.mean() - scipy.special.ndtri(POWER) * largest.std() >= -math.log(level))

    return _fewest(rejects, least)


def _fewest(rejects: Callable[[float], bool], about: float) -> float:
    """The number of steps from which on `rejects` is true, in units of `about` up to `MOST`."""
    low, high = 0.2, 1.0
    while not rejects(high * about):
        low, high = high, 1.5 * high
        if high > MOST:
            return math.inf
    while high / low > PRECISION and math.ceil(low * about) < math.floor(high * about):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if rejects(middle * about) else (middle, high)
    return float(math.ceil(high * about))


def _largest_log_e(shown: _Shown, outcomes: Ints) -> Floats:
    """[n], of the outcomes [n, sequences] of n runs."""
    observed = shown.tables.merged({"prefixes": shown.known.prefixes(outcomes.T)})
    each = shown.tables.log_e(observed).max(axis=1)
    return np.maximum(each, shown.tables.log_pooled_e(observed))


# --- the page --------------------------------------------------------------------------------------------


def page(rows: Sequence[Row]) -> str:
    """docs/results/sample-sizes.md."""
    shown = [row for row in rows if row["case"]]
    beyond = [_beyond(row) for row in shown if row["ratio"] > GOAL]
    lines = [
        (
            *(f"`{row['mistake']}`", row["case"], f"{row['divergence']:.3g}"),
            *(_steps(row["most_powerful"]), _steps(row["audit"]), f"{row['ratio']:.2f}"),
        )
        for row in shown
    ]
    head = ("mistake", "case", "divergence", "most powerful test", "audit", "ratio")
    values = {
        "BUDGET": BUDGET,
        "POWER": POWER,
        "GOAL": GOAL,
        "total": len(shown),
        "within": len(shown) - len(beyond),
        "median": np.median([row["ratio"] for row in shown]),
        "beyond": f"Above it are {', '.join(beyond)}." if beyond else "No mistake needs more.",
        "early": sum(row["most_powerful"] < row["first_look"] for row in shown),
        "table": markdown_table(head, lines, numbers=4),
    }
    return written("sample-sizes", values)


def _steps(number: float) -> str:
    return f"{number:,.0f}" if number < 1e7 else f"{number:.3g}"


def _beyond(row: Row) -> str:
    return f"`{row['mistake']}` ({row['ratio']:.2f}, of {_steps(row['most_powerful'])} steps)"
