"""Diagnose a verifier of chains: which known mistake it makes.

Steps of the diagnostic cases are drawn until one mistake is far likelier than all others, or a limit is
reached. Mistakes that are alike there, because they show only in a precision, in a tail, or between the rows
of a call, are separated by the rejected tables of the audit: each mistake is run on the same case."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from specsim.auditing._cases.battery import Case, case_key
from specsim.auditing._cases.shapes import ShapesCase
from specsim.auditing._checks.claimed_law import Claim
from specsim.auditing._checks.counts import AuditTally
from specsim.auditing._checks.findings import dependent
from specsim.auditing._checks.shapes import ShapesTally
from specsim.auditing._checks.subjects import VerifierSubject
from specsim.auditing._diagnosis import ranking as ranks
from specsim.auditing._diagnosis.dependence import Signature, signature
from specsim.auditing._diagnosis.outcomes import OutcomeTally, diagnostic_cases, path_of
from specsim.auditing._diagnosis.predictions import leaves_the_path, predict
from specsim.auditing._diagnosis.ranking import FIT, SEPARATE, Scored, alike, conclude, score_mutant
from specsim.auditing._execution import Steps, count_steps
from specsim.auditing._results import CaseResult, Diagnosis
from specsim.auditing._verifier.calls import TIMEOUT, ShapesSource, VerifierSource
from specsim.auditing._verifier.contract import BrokenVerifier, Declared, NotADraftPath
from specsim.auditing._verifier.local import Local
from specsim.auditing.mutants import Mutant, catalogue
from specsim.auditing.mutants import _randomness as randomness
from specsim.auditing.mutants import _reference as pieces
from specsim.core._streams import Key
from specsim.core._types import Ints
from specsim.rules import get
from specsim.simulation._counting import run

#: Steps of each diagnostic case after which the mistakes are ranked.
SEGMENTS = [2**13, 2**15, 2**17]
#: Steps that are searched for an outcome.
SEARCHED_STEPS = 2**13
#: Steps and key of a known mistake that is run on a case of the audit.
COMPARED_STEPS, COMPARISON_KEY = 2**15, (0x5EED, 0xCA5E)
#: The most bytes of a step of such a case.
COMPARED_BYTES = 2**20
#: The declarations of a known mistake.
PLAIN = Declared()
#: An exact verifier, ranked with the mistakes.
EXACT = Mutant(name="exact", family="exact", mechanism="", verify=pieces.verify, law=get("standard").law)


def diagnose_chain(
    subject: VerifierSubject,
    failed: Sequence[CaseResult],
    level: str,
    root: int,
    known: Sequence[Mutant] | None = None,
    deadline: float = math.inf,
) -> Diagnosis | None:
    """Diagnose the verifier `subject`, whose cases `failed`, by default with all known mistakes.

    Raises OutOfTime after `deadline`, a time of `time.monotonic`."""

    def in_time(*_: int) -> None:
        ranks.check_time(deadline)

    cases = diagnostic_cases(subject.declared)
    mutants = [one for one in known or catalogue() if one.verify is not None]
    if any(dependent(result.tables, result.counts) for result in failed):
        return _between_steps(mutants, subject, sum(result.steps for result in failed))
    outcomes: list[Ints] = []
    done = 0
    for steps in SEGMENTS:
        asked = [Steps(case.name, case_key(root, case.name), done, steps - done) for case in cases]
        try:
            new = [count_steps(subject, one, in_time).counts["outcomes"] for one in asked]
        except NotADraftPath:
            return _off_the_path(mutants, cases)
        outcomes = [a + b for a, b in zip(outcomes, new, strict=True)] if outcomes else new
        done = steps
        ranking = _rank([*mutants, EXACT], cases, outcomes, in_time)
        if len(alike(ranking)) == 1 and not _exact_fits(ranking):
            break
    ranking = _separate_by_tables(ranking, subject, failed, level, in_time)
    evidence, where = _evidence(ranking[0], cases, outcomes, subject, root) if alike(ranking) else ("", "")
    return conclude(ranking, EXACT, done * len(cases), evidence, where)


def _rank(
    mutants: Sequence[Mutant], cases: Sequence[Case], outcomes: Sequence[Ints], in_time: Callable[[], None]
) -> list[Scored]:
    """Rank the mistakes; only those that fit the other cases are tested on the relabelled case."""
    plain = [i for i, case in enumerate(cases) if not case.rotated]
    some, counts = [cases[i] for i in plain], [outcomes[i] for i in plain]
    found = []
    for mutant in mutants:
        in_time()
        found.append(score_mutant(ranks.fit_parameter(mutant, some, counts), some, counts))
    first = _discount_exact([one for one in found if one is not None], some)
    whole = [(one, score_mutant(one.mutant, cases, outcomes)) for one in first if one.fit >= FIT]
    return ranks.merge_rankings(first, [again or one for one, again in whole])


def _discount_exact(found: list[Scored], cases: Sequence[Case]) -> list[Scored]:
    """If outcomes are not exact, give mistakes whose single steps are exact the fit of the exact verifier.

    These mistakes show only between rows or with other labels. Their law is estimated, so a small bias could
    fit it although it does not fit the exact law."""
    exact = next(one for one in found if one.mutant is EXACT)
    if exact.fit >= FIT:
        return found
    return [
        replace(one, log_likelihood=exact.log_likelihood, fit=exact.fit)
        if one.fit >= FIT and one.mutant.law is None and _gives_exact_outcomes(one.mutant, cases)
        else one
        for one in found
    ]


def _gives_exact_outcomes(mutant: Mutant, cases: Sequence[Case]) -> bool:
    """Whether single steps of `mutant`, which has no law, are exact."""
    if mutant.family == randomness.FAMILY:  # its steps are not independent
        return True
    counts = []
    for case in cases:
        own = predict(mutant, case)
        if own is None or own.draws is None:
            return False
        counts.append(np.rint(own.law * own.draws[:, None, None]).astype(np.int64))
    exact = score_mutant(EXACT, cases, counts)
    return exact is not None and exact.fit >= FIT


def _separate_by_tables(
    ranking: list[Scored],
    subject: VerifierSubject,
    failed: Sequence[CaseResult],
    level: str,
    in_time: Callable[[], None],
) -> list[Scored]:
    """Order the mistakes that are alike by the rejected tables of the audit.

    If the exact verifier fits the outcomes too, all mistakes that fit are ordered by the tables."""
    tied = [one for one in ranking if one.fit >= FIT] if _exact_fits(ranking) else alike(ranking)
    if len(tied) < 2 and not _exact_fits(ranking):
        return ranking
    comparable = [result for result in failed if _comparable(subject, result)]
    worst = sorted(comparable, key=lambda result: -result.largest_log10_e)[:2]
    rescored = []
    for one in tied:
        gain, fit = 0.0, one.fit
        for result in worst:
            in_time()
            more, p_value = _by_tables(one.mutant, subject, result, level)
            gain, fit = gain + more, min(fit, p_value)
        rescored.append(Scored(one.mutant, one.log_likelihood + gain, fit))
    return ranks.sort_ranking(rescored) + [one for one in ranking if one not in tied]


def _exact_fits(ranking: Sequence[Scored]) -> bool:
    return any(one.mutant is EXACT and one.fit >= FIT for one in ranking)


def _between_steps(mutants: Sequence[Mutant], subject: VerifierSubject, steps: int) -> Diagnosis:
    """Rank the mistakes without a law of a step by which steps depend on each other.

    The outcomes are not used, since the steps are not independent."""
    seen, ranking = signature(subject.callee, subject.timeout), []
    for mutant in (mutant for mutant in mutants if mutant.law is None):
        mismatches = _count_mismatches(_signature_of(mutant), seen)
        ranking.append(Scored(mutant, -100.0 * mismatches, float(mismatches == 0)))
    ranking.sort(key=lambda one: -one.log_likelihood)
    return conclude(ranking, EXACT, steps, "", "")


@cache  # the same in every diagnosis
def _signature_of(mutant: Mutant) -> Signature | None:
    return signature(Local(mutant.function, PLAIN), TIMEOUT)


def _count_mismatches(mutant: Signature | None, seen: Signature | None) -> int:
    """The number of pairs in which `mutant` differs from `seen`; all if they cannot be compared."""
    if mutant is None or seen is None:
        return len(mutant or seen or (None,))
    return sum(mutant[pair] != agree for pair, agree in seen.items())


def _by_tables(
    mutant: Mutant, subject: VerifierSubject, result: CaseResult, level: str
) -> tuple[float, float]:
    """(log-likelihood, p-value of the fit) of the rejected tables of `result`, from a run of the mutant."""
    index = subject.index(result.case)
    plan, case = subject.plan(index, level), subject.cases[index]
    callee, steps = Local(mutant.function, PLAIN), min(plan.steps, COMPARED_STEPS)
    source: Any
    tally: Any
    if isinstance(case, ShapesCase):
        source, tally = ShapesSource(callee, case, subject.timeout), ShapesTally(case)
    else:
        source = VerifierSource(callee, case, subject.timeout)
        tally = AuditTally(case, Claim(None, case.tree))
    try:
        counts = run(source, tally, COMPARISON_KEY, 0, steps, threads=1).counts
    except (BrokenVerifier, NotADraftPath):
        return -np.inf, 0.0
    total, statistic, df = 0.0, 0.0, 0
    for table, judged in zip(plan.tables, result.tables, strict=True):
        if judged.rejected:
            seen, drawn = table.counts(result.counts), table.counts(counts)
            law = (drawn + 0.5) / (drawn.sum() + 0.5 * len(drawn))
            total += float(seen @ np.log(law))
            x2, cells = _two_samples(seen, drawn)
            statistic, df = statistic + x2, df + cells
    return total, ranks.fit_of(statistic, df)


def _comparable(subject: VerifierSubject, result: CaseResult) -> bool:
    """Whether the known mistakes can be run on the case: not where a step has too many bytes."""
    return subject.cases[subject.index(result.case)].step_bytes <= COMPARED_BYTES


def _two_samples(a: Ints, b: Ints) -> tuple[float, int]:
    """Pearson's chi-square of two samples, on the cells with at least 10 counts."""
    kept = a + b >= 10
    n, m = a.sum(), b.sum()
    if kept.sum() < 2 or not n or not m:
        return 0.0, 0
    x, y = a[kept], b[kept]
    return float(((x * np.sqrt(m / n) - y * np.sqrt(n / m)) ** 2 / (x + y)).sum()), int(kept.sum()) - 1


def _off_the_path(mutants: Sequence[Mutant], cases: Sequence[Case]) -> Diagnosis:
    """For a verifier that emits tokens off the draft path: the known mistakes that do so too."""
    ranking = [Scored(one, 0.0, 1.0) for one in mutants if any(leaves_the_path(one, case) for case in cases)]
    return conclude(ranking, EXACT, 0, "", "") if ranking else Diagnosis((), (), 0, "", "")


def _evidence(
    best: Scored, cases: Sequence[Case], outcomes: Sequence[Ints], subject: VerifierSubject, root: int
) -> tuple[str, str]:
    """The outcome that best separates the mistake from an exact verifier, and one step with it."""
    gains = []
    for i, (case, counts) in enumerate(zip(cases, outcomes, strict=True)):
        here, exact = predict(best.mutant, case), predict(EXACT, case)
        if here is None or exact is None or case.rotated:
            continue
        with np.errstate(divide="ignore", invalid="ignore"):
            gain = np.where(counts > 0, counts * np.log(here.law / np.maximum(exact.law, 1e-6)), 0.0)
        cell = tuple(int(k) for k in np.unravel_index(int(np.nanargmax(gain)), counts.shape))
        gains.append((float(gain[cell]), i, cell, float(here.law[cell]), float(exact.law[cell])))
    most, i, (code, accepted, token), predicted, right = max(gains)
    if most < SEPARATE:
        return "", ""
    case, counts = cases[i], outcomes[i]
    path = list(path_of(code, case.target.vocab_size, case.gamma))
    share = counts[code, accepted, token] / counts[code].sum()
    text = (
        f"Evidence (case {case.name!r}): of the steps that drafted {path} and accepted {accepted or 'none'}, "
        f"{100 * share:.4g} % emitted token {token} (this bug: {100 * predicted:.4g} %; an exact token-wise "
        f"verifier: {100 * right:.4g} %)."
    )
    step = _find_outcome(subject, case.name, case_key(root, case.name), (code, accepted, token))
    if step is None:
        return text, ""
    replay = f"specsim audit replay {subject.name} --case {case.name!r} --step {step} --seed {root}"
    return text, f"One such step: {replay}"


def _find_outcome(subject: VerifierSubject, case: str, key: Key, cell: tuple[int, ...]) -> int | None:
    """The first step with that outcome among the first `SEARCHED_STEPS` of a diagnostic case."""
    source, tally = subject.counter(case)
    assert isinstance(tally, OutcomeTally)
    for batch in source.batches(key, 0, SEARCHED_STEPS):
        where = np.flatnonzero((tally.cells(batch) == np.array(cell)).all(axis=1))
        if len(where):
            return batch.first + int(where[0])
    return None
