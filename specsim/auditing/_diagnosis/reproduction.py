"""What a known mistake does: its prediction for a diagnostic case, and whether it reproduces an audit.

A prediction of the outcomes given the drafted path is exact from the mistake's law; where it has none, it is
run. In small cases and rejected tables another mistake may have the same law. So a mistake is named only if
it agrees with the verifier elsewhere too: it is run on every case, and compared with the audit."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
import scipy

from specsim.adapters._contract import BrokenVerifier, Declared, NotADraftPath
from specsim.auditing._cases.battery import Case
from specsim.auditing._cases.shapes import ShapesCase
from specsim.auditing._checks import findings
from specsim.auditing._checks.claimed_law import Claim
from specsim.auditing._checks.counts import AuditTally, OutcomeTally, path_of
from specsim.auditing._checks.shapes import ShapesTally
from specsim.auditing._checks.tables import Table
from specsim.auditing._diagnosis.likelihood import Prediction, fit
from specsim.auditing._diagnosis.posterior import STANDARD, Limits
from specsim.auditing._results.audit import CaseResult, TableResult
from specsim.auditing._verifier.calls import ShapesSource, VerifierSource
from specsim.auditing._verifier.local import Local
from specsim.core._streams import Key
from specsim.core._types import Floats, Ints, Tokens
from specsim.mistakes import Mistake
from specsim.simulation._counting import Counts, run

#: Steps and key of a mistake that is run.
SIMULATED_STEPS, SIMULATION_KEY = 2**16, (0x5EED, 0xD1A6)
#: The p-value above which a mistake does not show in a case.
UNSEEN = 1e-3
#: Largest difference of two laws that are the same.
ROUNDING = 1e-9
#: The most bytes of the rows of a mistake that is run on a case, and of a step there; keys of random numbers.
RUN_BYTES, STEP_BYTES, KEY, AGAIN = 2**31, 2**20, (0x5EED, 0xCA5E), (0x5EED, 0xA6A1)
#: Steps of a mistake that is compared with all cases, and the fewest of an audited case.
STEPS, FEWEST = 2**15, 2**9
#: Cells of smaller counts are merged before two samples are compared.
MERGED = 20
#: The p-value, times the tests of the audit, below which a mistake is refuted.
REFUTED = 1e-4

Rows = list[tuple[float, ...]]


@lru_cache(maxsize=2**14)  # each round of a diagnosis fits the parameters on the same grids
def predict(mistake: Mistake, case: Case) -> Prediction | None:
    """The prediction of `mistake` for `case`; None if it breaks the contract."""
    if mistake.law is None:
        source = VerifierSource(Local(mistake.function, Declared()), case)
        if (found := count_steps(source, OutcomeTally(case), SIMULATION_KEY, SIMULATED_STEPS)) is None:
            return None
        counts, right = flat(found["outcomes"]), predict(STANDARD, case)
        assert right is not None
        # where it does not show its law is the exact one, without noise
        return right if fit([(right, counts)]) > UNSEEN else Prediction.simulated(counts)
    if case.rotated and _reads_labels(mistake, case):
        shifts = list(product(range(case.target.vocab_size), repeat=case.gamma + 1))
        return Prediction(np.mean([_law(mistake, case, shift) for shift in shifts], axis=0))
    return Prediction(_law(mistake, case))


def count_steps(source: Any, tally: Any, key: Key, steps: int) -> Counts | None:
    """The counts of the steps of a mistake; None if it breaks the contract."""
    try:
        return run(source, tally, key, 0, steps, threads=1).counts
    except (BrokenVerifier, NotADraftPath):
        return None


def flat(outcomes: Ints) -> Ints:
    """Outcomes [V^γ, γ+1, V] as groups, one for each drafted path, of cells."""
    return outcomes.reshape(len(outcomes), -1)


def _law(mistake: Mistake, case: Case, shift: Tokens | None = None) -> Floats:
    """The law [V^γ, (γ+1)·V] of outcomes given the path, where row i is relabelled by shift[i]."""
    assert mistake.law is not None
    size, gamma = case.target.vocab_size, case.gamma
    law, paths, parents = np.zeros((size**gamma, gamma + 1, size)), _draft_paths(case), case.tree.parents
    given = [(path, p, q) if shift is None else _relabelled(path, p, q, shift) for _, path, p, q in paths]
    steps = [mistake.law(parents, *one, **mistake.values) for one in given]
    stop, rows = (np.array(part, dtype=np.float64) for part in zip(*steps, strict=True))
    for i, turn in enumerate(shift or ()):
        rows[:, i] = np.roll(rows[:, i], -turn, axis=1)
    law[[code for code, *_ in paths]] = stop[:, :, None] * rows
    return np.clip(law, 0.0, None).reshape(len(law), -1)


def _relabelled(path: Tokens, p: Rows, q: Rows, shift: Tokens) -> tuple[Tokens, Rows, Rows]:
    """Token x of row i is called x + shift[i]."""
    size = len(p[0])
    p, q = ([_turned(row, turn) for row, turn in zip(rows, shift, strict=False)] for rows in (p, q))
    return tuple((x + turn) % size for x, turn in zip(path, shift, strict=False)), p, q


@lru_cache(maxsize=2**10)
def _turned(row: tuple[float, ...], turn: int) -> tuple[float, ...]:
    """`row` turned right; of equal rows the same object, by which laws keep what they compute."""
    return row[-turn:] + row[:-turn] if turn else row


@lru_cache(maxsize=2**9)
def _reads_labels(mistake: Mistake, case: Case) -> bool:
    """Whether the law changes, but for names, if the tokens are renamed."""
    plain, size = _law(mistake, case), case.target.vocab_size
    turns = (tuple((k * (i + 1)) % size for i in range(case.gamma + 1)) for k in (1, size - 1))
    return any(not np.allclose(plain, _law(mistake, case, turn), atol=ROUNDING) for turn in turns)


@lru_cache(maxsize=16)
def _draft_paths(case: Case) -> list[tuple[int, Tokens, Rows, Rows]]:
    """Every path that the draft can draw: its code, its tokens, and the rows of p and q along it."""
    size, gamma = case.target.vocab_size, case.gamma
    found = []
    for code in range(size**gamma):
        path = path_of(code, size, gamma)
        p, q = (
            [_turned(tuple(map(float, model.row(case.start + path[:i]))), 0) for i in range(count)]
            for model, count in ((case.target, gamma + 1), (case.draft, gamma))
        )
        if all(row[x] > 0 for row, x in zip(q, path, strict=True)):
            if case.certain:
                q = [tuple(float(y == x) for y in range(size)) for x in path]
            found.append((code, path, p, q))
    return found


@dataclass(frozen=True)
class Audited:
    """A verifier or decoder, the `results` of its audit, and the clock of its diagnosis."""

    subject: Any
    results: Sequence[CaseResult]
    level: str
    root: int
    in_time: Limits

    @property
    def failed(self) -> list[CaseResult]:
        return [result for result in self.results if result.findings]

    def tables(self, result: CaseResult) -> list[tuple[Table, TableResult]]:
        """The tables of a case, planned and judged."""
        (plan,) = self.subject.plans(self.level, [result.case])
        return list(zip(plan.tables, result.tables, strict=True))

    def run(self, mistake: Mistake, result: CaseResult, most: int, key: Key = KEY) -> Counts | None:
        """The counts of at most `most` steps of `mistake` in a case; None if it breaks the contract."""
        case = self.subject.case(result.case)
        callee = Local(mistake.function, Declared(batch=self.subject.declared.batch))
        shaped = isinstance(case, ShapesCase)
        source = (ShapesSource if shaped else VerifierSource)(callee, case, self.subject.timeout)
        tally = ShapesTally(case) if shaped else AuditTally(case, Claim(None, case.tree))
        return count_steps(source, tally, key, max(8, min(most, RUN_BYTES // case.step_bytes) // 8 * 8))

    def refutes(self, mistake: Mistake) -> bool:
        """Whether `mistake` differs from the verifier in its counts, or in which steps depend on each other.

        Where they do, a difference must be larger by their design effect; if that is unknown, none counts."""
        # in calls of changing shape the law of p and q of a step depends on how many steps there are
        enough = [
            one
            for one in self.results
            if one.steps >= FEWEST and not isinstance(self.subject.case(one.case), ShapesCase)
        ]
        tests = sum(len(one.tables) + 2 for one in enough)
        for result in enough:
            self.in_time()
            if (counts := self.run(mistake, result, STEPS)) is None:
                continue  # a case that is not for every mistake: q is None, or drafts of several lengths
            effect = findings.design_effect(result.tables, result.counts)
            if effect is not None and effect != 1.0:  # the larger of both
                other = findings.effect_of_calls(counts)
                effect = None if other is None else max(effect, other)
            if effect is None:
                continue
            pairs = [(result.lengths, counts["lengths"])]
            # where all rows of a call end together, two runs of the mistake differ in lengths as much
            if p_value(*pairs[0], effect) * tests < REFUTED:
                again = self.run(mistake, result, STEPS, AGAIN)
                if again is None or p_value(counts["lengths"], again["lengths"]) * tests < REFUTED:
                    pairs = []
            tied = findings.dependent(result.tables)
            for table, judged in self.tables(result):
                there, here = table.counts(result.counts), table.counts(counts)
                untied = judged in tied and findings.independence(here) > findings.DEPENDENT
                if untied or table.kind not in findings.OF_STEPS:
                    pairs.append((there, here))
            p_values = [_same_rate(result, counts), *(p_value(*pair, effect) for pair in pairs)]
            if min(p_values) * tests < REFUTED:
                return True
        return False


def _same_rate(result: CaseResult, counts: Counts) -> float:
    """The p-value of Fisher's test that steps emit impossible tokens equally often."""
    steps = result.steps, int(counts["lengths"].sum())
    found = [int(some["impossible"].sum()) for some in (result.counts, counts)]
    table = [[min(some, all_), max(all_ - some, 0)] for some, all_ in zip(found, steps, strict=True)]
    return float(scipy.stats.fisher_exact(table).pvalue)


def p_value(one: Ints, other: Ints, effect: float = 1.0) -> float:
    """The p-value of a chi-square test that two samples, of this design effect, have one law."""
    counts = np.array([one, other])
    often = counts.sum(axis=0) >= MERGED
    table, rest = counts[:, often], counts[:, ~often].sum(axis=1)
    if rest.sum() >= MERGED:
        table = np.column_stack([table, rest])
    if table.shape[1] < 2 or (table.sum(axis=1) < MERGED).any():
        return 1.0
    found = scipy.stats.chi2_contingency(table, correction=False)
    return float(scipy.stats.chi2.sf(found.statistic / effect, found.dof))
