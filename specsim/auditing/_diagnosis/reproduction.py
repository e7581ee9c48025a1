"""Whether a known mistake reproduces what an audit has counted.

In small cases and rejected tables another mistake may have the same law. So a mistake is named only if it
agrees with the verifier elsewhere too: it is run on every case, and compared with the audit."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from specsim.adapters._contract import BrokenVerifier, Declared, NotADraftPath
from specsim.auditing._cases.shapes import ShapesCase
from specsim.auditing._checks import findings
from specsim.auditing._checks.claimed_law import Claim
from specsim.auditing._checks.counts import AuditTally
from specsim.auditing._checks.shapes import ShapesTally
from specsim.auditing._checks.subjects import VerifierSubject
from specsim.auditing._checks.tables import Table
from specsim.auditing._diagnosis.posterior import InTime
from specsim.auditing._results.audit import CaseResult, TableResult
from specsim.auditing._verifier.calls import ShapesSource, VerifierSource
from specsim.auditing._verifier.local import Local
from specsim.core._types import Ints
from specsim.mistakes import Mistake
from specsim.simulation._counting import Counts, run

#: The most bytes of the rows of a mistake that is run on a case, those of one step of such a case, and
#: the key of its random numbers.
RUN_BYTES, STEP_BYTES, KEY = 2**31, 2**20, (0x5EED, 0xCA5E)
#: Steps of a mistake that is compared with all cases, and the fewest of an audited case.
STEPS, FEWEST = 2**15, 2**9
#: Cells of smaller counts are merged before two samples are compared.
MERGED = 20
#: The p-value, times the tests of the audit, below which a mistake is refuted.
REFUTED = 1e-4


@dataclass(frozen=True)
class Audited:
    """A verifier of chains, the `results` of its audit, and the clock of its diagnosis."""

    subject: VerifierSubject
    results: Sequence[CaseResult]
    level: str
    root: int
    in_time: InTime

    @property
    def failed(self) -> list[CaseResult]:
        return [result for result in self.results if result.findings]

    def tables(self, result: CaseResult) -> list[tuple[Table, TableResult]]:
        """The tables of a case, planned and judged."""
        (plan,) = self.subject.plans(self.level, [result.case])
        return list(zip(plan.tables, result.tables, strict=True))

    def run(self, mistake: Mistake, result: CaseResult, most: int) -> Counts | None:
        """The counts of at most `most` steps of `mistake` in a case; None if it breaks the contract."""
        case = self.subject.case(result.case)
        steps = max(8, min(most, RUN_BYTES // case.step_bytes) // 8 * 8)
        callee = Local(mistake.function, Declared(batch=self.subject.declared.batch))
        source: Any
        tally: Any
        if isinstance(case, ShapesCase):
            source, tally = ShapesSource(callee, case, self.subject.timeout), ShapesTally(case)
        else:
            source = VerifierSource(callee, case, self.subject.timeout)
            tally = AuditTally(case, Claim(None, case.tree))
        try:
            return run(source, tally, KEY, 0, steps, threads=1).counts
        except (BrokenVerifier, NotADraftPath):
            return None

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
            counts = self.run(mistake, result, STEPS)
            if counts is None:
                continue  # a case that is not for every mistake: q is None, or drafts of several lengths
            if (effect := _design_effect(result, counts)) is None:
                continue
            pairs = [(result.lengths, counts["lengths"])]
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


def _design_effect(result: CaseResult, counts: Counts) -> float | None:
    """The larger design effect of both; 1 if the verifier's steps are independent, None if it is unknown."""
    effect = findings.design_effect(result.tables, result.counts)
    if effect is None or effect == 1.0:
        return effect
    other = findings.effect_of_calls(counts)
    return None if other is None else max(effect, other)


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
