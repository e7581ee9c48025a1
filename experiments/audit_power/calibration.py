"""The calibration of the battery: does an exact verifier alarm as rarely as is said, are its p-values uniform?

Where the law of a step is known (`experiments.audit_power.power`), an audit need not be run: its counts are drawn at once, for a
thousand audits side by side. Whole steps are multinomial; PIT and tail bins are multinomial over their visits, as under
exactness; so are pairs of quarters. Each audit is looked at as often as a real one, and its e-values compared with the
alarm. The exact binomials of single cells, which cannot fail to be calibrated, are left out, though they keep their share
of the budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from experiments.audit_power.power import Known, known_decoder, known_steps, tables_of
from specsim.auditing._cases.battery import LEVELS, battery
from specsim.auditing._cases.decoder_battery import decoder_battery
from specsim.auditing._checks.claimed_law import Claim
from specsim.auditing._checks.counts import NEIGHBOURS, PIT_BINS, QUARTERS, TAIL_EDGES
from specsim.auditing._checks.findings import MIN_TOO_GOOD_DF, SINGLE_CELLS
from specsim.auditing._checks.tables import LOOKS, Table
from specsim.auditing._verifier.contract import Declared
from specsim.auditing.mutants import Mutant
from specsim.core.distributions import Floats
from specsim.core.stats import MIN_EXPECTED, log_e_values
from specsim.drafts import chains
from specsim.rules import Rule

__all__ = ["Calibration", "calibrate", "exact_cases"]

#: A case with the law of its steps, its tables, and how many steps it is given.
Drawn = tuple[Known, Sequence[Table], int]
#: Steps of a case, those of a smoke audit.
STEPS, DECODER_STEPS = LEVELS["smoke"].verifier, LEVELS["smoke"].decoder

#: Cases in which a step has more outcomes take too long to draw.
MAX_OUTCOMES = 1024


@dataclass(frozen=True)
class Calibration:
    """`alarms` of `audits` audits, and the p-values [audits · cases] of each case's summed prefix tables."""

    audits: int
    alarms: int
    p_values: Floats

    def alarm_rate(self, confidence: float = 0.95) -> tuple[float, float]:
        """The exact binomial (Clopper–Pearson) interval of the alarm rate."""
        found = stats.binomtest(self.alarms, self.audits).proportion_ci(confidence)
        return float(found.low), float(found.high)

    @property
    def uniformity(self) -> float | None:
        """The p-value of Kolmogorov and Smirnov for the p-values' being uniform; None if nothing was left to test."""
        if not self.p_values.size:
            return None
        return float(stats.kstest(self.p_values, "uniform").pvalue)


def exact_cases(owner: Rule | Mutant) -> list[Drawn]:
    """The cases of an exact rule's or innocent's battery that can be enumerated; several drafts are cut to two of two tokens."""
    if isinstance(owner, Mutant) and owner.decode:
        return [
            (known_decoder(owner, case), tables_of(case, None, DECODER_STEPS), DECODER_STEPS)
            for case in decoder_battery()
        ]
    found: list[Drawn] = []
    for case in battery(owner if isinstance(owner, Rule) else Declared()):
        if isinstance(owner, Rule) and owner.claimed_on_trees and not case.tree.is_chain:
            case = replace(case, tree=chains(2, 2, owner.draft_sampling[0]))
        claim = Claim(owner if isinstance(owner, Rule) else None, case.tree)
        known = known_steps(owner, case, claim)
        if known is not None and len(known.law) <= MAX_OUTCOMES:
            found.append((known, tables_of(case, claim, STEPS), STEPS))
    return found


def calibrate(cases: Sequence[Drawn], budget: float, audits: int, rng: np.random.Generator) -> Calibration:
    """Draw `audits` audits of `cases` with false-alarm budget `budget`."""
    level = budget / sum(len(tables) + SINGLE_CELLS * known.positions + 1 for known, tables, _ in cases)
    alarmed, p_values = np.zeros(audits, dtype=bool), []
    for known, tables, steps in cases:
        counts, done = _nothing(known, audits), 0
        for until in (int(steps * share) for share in LOOKS):
            for name, more in _drawn(known, until - done, audits, rng).items():
                counts[name] += more
            done = until
            for table in tables:
                alarmed |= log_e_values(_of(table, counts), table.law) >= -np.log(level)
        alarmed |= counts["impossible"][0] > 0
        statistic, df = _summed_chi_square(tables, counts)
        alarmed |= (df >= MIN_TOO_GOOD_DF) & (stats.chi2.cdf(statistic, np.maximum(df, 1)) < level)
        p_values.append(stats.chi2.sf(statistic, df)[df > 0])
    return Calibration(audits, int(alarmed.sum()), np.concatenate(p_values))


def _nothing(known: Known, audits: int) -> dict[str, NDArray[np.int64]]:
    empty = np.zeros((len(known.law), audits), dtype=np.int64)
    sizes = {
        "pit": known.positions * PIT_BINS,
        "tail": known.positions * len(TAIL_EDGES),
        "neighbours": len(NEIGHBOURS) * QUARTERS**2,
        "impossible": 1,
    }
    zeros = {name: np.zeros((size, audits), dtype=np.int64) for name, size in sizes.items()}
    return {"prefixes": known.prefixes(empty), **zeros}


def _drawn(known: Known, steps: int, audits: int, rng: np.random.Generator) -> dict[str, NDArray[np.int64]]:
    """Counts [cells, audits] of `steps` steps, array by array as a tally has them."""
    outcomes = rng.multinomial(steps, known.law, size=audits).T
    visits = [outcomes[known.lengths > i].sum(axis=0) for i in range(known.positions)]
    pit = np.full(PIT_BINS, 1.0 / PIT_BINS)
    tail = np.diff(TAIL_EDGES, prepend=0.0)
    pairs = np.full(QUARTERS**2, 1.0 / QUARTERS**2)
    return {
        "prefixes": known.prefixes(outcomes),
        "pit": np.concatenate([rng.multinomial(n, pit).T for n in visits]),
        "tail": np.concatenate([rng.multinomial(n, tail).T for n in visits]),
        "neighbours": np.concatenate([rng.multinomial(steps // 2, pairs, size=audits).T for _ in NEIGHBOURS]),
        "impossible": outcomes[known.fatal].sum(axis=0, keepdims=True),
    }


def _of(table: Table, counts: dict[str, NDArray[np.int64]]) -> NDArray[np.int64]:
    """The counts [audits, k] of one table."""
    return table.merged(counts[table.source]).T


def _summed_chi_square(
    tables: Sequence[Table], counts: dict[str, NDArray[np.int64]]
) -> tuple[Floats, NDArray[np.int64]]:
    """Pearson's statistics [audits] of all prefix tables, which are independent given their visits, and their degrees.

    A table whose visits fell far short of the plan is left out, as an audit does.
    """
    audits = counts["impossible"].shape[1]
    statistic, df = np.zeros(audits), np.zeros(audits, dtype=np.int64)
    for table in (one for one in tables if one.kind == "prefix"):
        observed = _of(table, counts)
        expected = observed.sum(axis=1)[:, None] * table.law
        shown = expected.min(axis=1) >= MIN_EXPECTED / 2
        terms = np.divide(
            (observed - expected) ** 2, expected, out=np.zeros_like(expected), where=expected > 0
        )
        statistic += np.where(shown, terms.sum(axis=1), 0.0)
        df += np.where(shown, len(table.law) - 1, 0)
    return statistic, df
