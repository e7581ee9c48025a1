"""The calibration of the audit: how often it rejects an exact verifier, and whether its p-values are uniform.

Where the distribution of a step is known (`experiments.audit._step_laws`), an audit need not be run: the
counts of thousands of audits are drawn from it at once. Whole steps are multinomial; PIT and tail bins are
multinomial given their visits, as for an exact verifier; so are pairs of quarters. Each drawn audit has the
interim looks of a real one, and its e-values are compared with the same threshold. The exact binomial tests
of single cells are calibrated by construction; they are left out, though they keep their share of the budget.
A few whole audits are run as well.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from experiments import Floats, Row
from experiments._pages import markdown_table, written
from experiments.audit._step_laws import Known, alarm, known_decoder, known_steps, rejections, tables_of
from specsim import mistakes, rules
from specsim.adapters._contract import Declared
from specsim.auditing import LEVELS
from specsim.auditing._cases.battery import battery, decoder_battery
from specsim.auditing._checks.claimed_law import Claim
from specsim.auditing._checks.counts import NEIGHBOURS, PIT_BINS, QUARTERS, TAIL_EDGES
from specsim.auditing._checks.findings import MIN_TOO_GOOD_DF
from specsim.auditing._checks.subjects import RuleSubject, function_subject
from specsim.auditing._checks.tables import LOOKS, Joined, Table, pooled_tables
from specsim.auditing._verifier.local import Local
from specsim.core.stats import MIN_EXPECTED
from specsim.mistakes import Mistake, _reference
from specsim.models import chains
from specsim.rules import Rule

TITLE = "The false-alarm rate of the audit on exact verifiers, and the uniformity of its p-values"
MINUTES = 20

#: A case with the distribution of its steps, its tables, and how many steps it is given.
Drawn = tuple[Known, Sequence[Table], int]
#: Steps of a case, those of a smoke audit.
STEPS, DECODER_STEPS = LEVELS["smoke"].verifier, LEVELS["smoke"].decoder

#: Cases in which a step has more outcomes take too long to draw.
MAX_OUTCOMES = 1024
#: The false-alarm budget of each audit: a larger one than by default, so that alarms can be counted.
BUDGET = 1e-3
#: Audits that are drawn for each exact rule, whole audits that are run, and bins of the p-values.
AUDITS, FAST_AUDITS = 4000, 50
WHOLE_AUDITS, FAST_WHOLE_AUDITS = 50, 1
BINS = 20
#: What is audited as a whole.
WHOLE = {
    "a verifier of arrays in NumPy": lambda: function_subject(Local(_reference.verify), "NumPy"),
    "the built-in standard rule": lambda: RuleSubject(rules.get("standard"), 1),
}


def cells(*, fast: bool) -> list[tuple[str, str]]:
    """(kind, verifier): drawn audits of each exact rule and of each exact control, then whole audits."""
    drawn = [("rule", name) for name in rules.names("chain", "tree")]
    drawn += [("exact control", name) for name in mistakes.names("exact control")]
    whole = [("whole audits", name) for name in WHOLE]
    return [*drawn[:2], whole[-1]] if fast else [*drawn, *whole]


def run_cell(cell: tuple[str, str], *, fast: bool, rng: int) -> Row:
    """How many audits of an exact verifier raised an alarm, with the 95 % interval of the rate.

    `uniformity` is the p-value of Kolmogorov and Smirnov for the p-values of prefix tables, `bin_k` counts
    these.
    """
    kind, name = cell
    if kind == "whole audits":
        return _whole_audits(name, range(rng, rng + (FAST_WHOLE_AUDITS if fast else WHOLE_AUDITS)))
    cases = exact_cases(rules.get(name) if kind == "rule" else mistakes.get(name))
    stream = np.random.SeedSequence([*kind.encode(), *name.encode()], spawn_key=(rng,))
    found = calibrate(cases, BUDGET, FAST_AUDITS if fast else AUDITS, np.random.default_rng(stream))
    return _row(kind, name, len(cases), sum(len(tables) for _, tables, _ in cases), found)


def _row(kind: str, name: str, cases: int, tables: int | None, found: "Calibration") -> Row:
    """The row of a verifier; whole audits have neither tables nor p-values."""
    low, high = found.alarm_rate()
    bins = [None] * BINS if tables is None else np.histogram(found.p_values, BINS, (0.0, 1.0))[0].tolist()
    return {
        "kind": kind,
        "verifier": name,
        "cases": cases,
        "tables": tables,
        "audits": found.audits,
        "alarms": found.alarms,
        "low": low,
        "high": high,
        "uniformity": found.uniformity,
        **{f"bin_{k}": count for k, count in enumerate(bins)},
    }


def _whole_audits(name: str, seeds: Sequence[int]) -> Row:
    """Smoke audits, each with the whole budget."""
    subject = WHOLE[name]()
    level = alarm(subject, "smoke", BUDGET)
    alarmed = set()
    for i in range(len(subject.cases)):
        steps = rejections(subject, i, "smoke", level, seeds)
        alarmed |= {seed for seed, n in zip(seeds, steps, strict=True) if n is not None}
    found = Calibration(len(seeds), len(alarmed), np.empty(0))
    return _row("whole audits", name, len(subject.cases), None, found)


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
        """The p-value of Kolmogorov and Smirnov for the p-values' being uniform; None if nothing was left to
        test."""
        if not self.p_values.size:
            return None
        return float(stats.kstest(self.p_values, "uniform").pvalue)


def exact_cases(owner: Rule | Mistake) -> list[Drawn]:
    """The cases of an exact rule's or exact control's audit that can be enumerated; several drafts are cut to
    two of two tokens."""
    if isinstance(owner, Mistake) and owner.decode:
        return [
            (known_decoder(owner, case), tables_of(case, None, DECODER_STEPS), DECODER_STEPS)
            for case in decoder_battery()
            if len(case.prompts) == 1
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
    level = budget / sum(len(tables) + 3 for _, tables, _ in cases)
    alarmed, p_values = np.zeros(audits, dtype=bool), []
    for known, tables, steps in cases:
        counts, done = _drawn(known, 0, audits, np.random.default_rng()), 0
        single, pooled = Joined(tables), Joined(pooled_tables(tables))
        for until in (int(steps * share) for share in LOOKS):
            for name, more in _drawn(known, until - done, audits, rng).items():
                counts[name] += more
            done = until
            alarmed |= (single.log_e(single.merged(counts)) >= -np.log(level)).any(axis=1)
            alarmed |= pooled.log_pooled_e(pooled.merged(counts)) >= -np.log(level)
        alarmed |= counts["impossible"][0] > 0
        statistic, df = _summed_chi_square(tables, counts)
        alarmed |= (df >= MIN_TOO_GOOD_DF) & (stats.chi2.cdf(statistic, np.maximum(df, 1)) < level)
        p_values.append(stats.chi2.sf(statistic, df)[df > 0])
    return Calibration(audits, int(alarmed.sum()), np.concatenate(p_values))


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
        "pairs": rng.multinomial(steps // 2, pairs, size=audits).T,
        "neighbours": np.concatenate([rng.multinomial(steps // 2, pairs, size=audits).T for _ in NEIGHBOURS]),
        "impossible": outcomes[known.fatal].sum(axis=0, keepdims=True),
    }


def _summed_chi_square(
    tables: Sequence[Table], counts: dict[str, NDArray[np.int64]]
) -> tuple[Floats, NDArray[np.int64]]:
    """Pearson's statistics [audits] of all prefix tables, which are independent given their visits, and their
    degrees.

    A table whose visits fell far short of the plan is left out, as an audit does.
    """
    audits = counts["impossible"].shape[1]
    statistic, df = np.zeros(audits), np.zeros(audits, dtype=np.int64)
    for table in (one for one in tables if one.kind == "prefix"):
        observed = table.merged(counts[table.source]).T  # [audits, cells]
        expected = observed.sum(axis=1)[:, None] * table.law
        shown = expected.min(axis=1) >= MIN_EXPECTED / 2
        terms = np.divide(
            (observed - expected) ** 2, expected, out=np.zeros_like(expected), where=expected > 0
        )
        statistic += np.where(shown, terms.sum(axis=1), 0.0)
        df += np.where(shown, len(table.law) - 1, 0)
    return statistic, df


# --- the page --------------------------------------------------------------------------------------------


def page(rows: Sequence[Row]) -> str:
    """docs/results/calibration.md."""
    drawn = [row for row in rows if row["kind"] != "whole audits"]
    bins = np.sum([[row[f"bin_{k}"] for k in range(BINS)] for row in drawn], axis=0)
    uniformities = [row["uniformity"] for row in drawn if row["uniformity"] is not None]
    values = {
        "BUDGET": BUDGET,
        "BINS": BINS,
        "alarms": sum(row["alarms"] for row in drawn),
        "audits": sum(row["audits"] for row in drawn),
        "tests": len(uniformities),
        "smallest": min(uniformities),
        "values": int(bins.sum()),
        "uniform": stats.chisquare(bins).pvalue,
        "fullest": bins.max() / bins.mean() - 1,
        "emptiest": bins.min() / bins.mean() - 1,
        "whole": "; ".join(
            f"{row['verifier']}, {row['alarms']} of {row['audits']} raised an alarm (95 % interval up to "
            f"{row['high']:.3f})"
            for row in rows
            if row["kind"] == "whole audits"
        ),
        "table": _table(drawn),
    }
    return written("calibration", values)


def _table(rows: Sequence[Row]) -> str:
    head = "exact verifier, cases, tables, alarms, 95 % interval of the false-alarm rate, uniformity"
    lines = [
        (
            f"{row['kind']} `{row['verifier']}`",
            *map(str, (row["cases"], row["tables"])),
            f"{row['alarms']} of {row['audits']}",
            f"{row['low']:.4f} to {row['high']:.4f}",
            "–" if row["uniformity"] is None else f"{row['uniformity']:.3g}",
        )
        for row in rows
    ]
    return markdown_table(head.split(", "), lines)
