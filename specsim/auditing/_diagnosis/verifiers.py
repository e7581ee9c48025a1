"""Which known mistake a verifier of chains makes.

Its steps are drawn on the diagnostic cases, more and more of them, until one known mistake is far likelier than all others,
or a limit is reached. Mistakes that look alike there, because they show only in a precision, in a tail, or between the
rows of a call, are told apart by the tables of the audit that failed: each is run on the same case.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from specsim.auditing import _jobs as jobs
from specsim.auditing._cases.battery import Case, case_key
from specsim.auditing._checks.claimed_law import Claim
from specsim.auditing._checks.counts import AuditTally
from specsim.auditing._checks.findings import dependent
from specsim.auditing._checks.subjects import VerifierSubject
from specsim.auditing._checks.tables import Plan
from specsim.auditing._diagnosis.dependence import Signature, signature
from specsim.auditing._diagnosis.outcomes import diagnostic_cases, path_of
from specsim.auditing._diagnosis.predictions import leaves_the_path, predict
from specsim.auditing._diagnosis.ranking import (
    FIT,
    SEPARATE,
    Scored,
    alike,
    conclusion,
    fit_of,
    fitted,
    looks,
    ordered,
    ranked,
    scored,
)
from specsim.auditing._execution import Place
from specsim.auditing._results import CaseResult, Diagnosis
from specsim.auditing._verifier.calls import TIMEOUT, verified
from specsim.auditing._verifier.contract import BrokenVerifier, Declared, NotADraftPath
from specsim.auditing.mutants import Mutant, catalogue
from specsim.auditing.mutants import _randomness as randomness
from specsim.auditing.mutants import _reference as pieces
from specsim.core.distributions import Ints
from specsim.rules import get
from specsim.simulation._counting import run

__all__ = ["diagnose_chain", "segments"]

#: Steps of each diagnostic case: at first, and at most; each time four times as many.
FIRST_STEPS, MOST_STEPS = 2**13, 2**17
#: Steps of a known mistake that is run on a case of the audit.
COMPARED_STEPS, COMPARISON_KEY = 2**15, (0x5EED, 0xCA5E)
#: A known mistake takes the plain arrays.
PLAIN = Declared()
#: What a verifier does that is exact where it was looked at.
EXACT = Mutant(name="exact", family="exact", mechanism="", verify=pieces.verify, law=get("standard").law)


def diagnose_chain(
    place: Place,
    failed: Sequence[CaseResult],
    level: str,
    root: int,
    known: Sequence[Mutant] | None = None,
) -> Diagnosis | None:
    """What the verifier at `place`, whose cases `failed`, does wrong. `known` mistakes are by default the catalogue's."""
    subject = place.subject
    assert isinstance(subject, VerifierSubject)
    cases = diagnostic_cases(subject.declared)
    mutants = [one for one in known or catalogue() if one.verify is not None]
    if any(dependent(result.tables, result.counts) for result in failed):
        return _between_steps(mutants, place, sum(result.steps for result in failed))
    outcomes: list[Ints] = []
    done = 0
    for steps in segments():
        asked = [jobs.Steps(case.name, case_key(root, case.name), done, steps - done) for case in cases]
        try:
            new = [place.run(jobs.count, one).counts["outcomes"] for one in asked]
        except NotADraftPath:
            return _off_the_path(mutants, cases)
        outcomes = [a + b for a, b in zip(outcomes, new, strict=True)] if outcomes else new
        done = steps
        ranking = _ranked([*mutants, EXACT], cases, outcomes)
        if len(alike(ranking)) == 1 and not _exact_fits(ranking):
            break
    ranking = _told_apart_by_tables(ranking, subject, failed, level)
    evidence, where = _evidence(ranking[0], cases, outcomes, place, root) if alike(ranking) else ("", "")
    return conclusion(ranking, EXACT, done * len(cases), evidence, where)


def segments() -> list[int]:
    """After how many steps of each case a look is taken."""
    return looks(FIRST_STEPS, MOST_STEPS)


# --- ranking ---------------------------------------------------------------------------------------------


def _ranked(mutants: Sequence[Mutant], cases: Sequence[Case], outcomes: Sequence[Ints]) -> list[Scored]:
    """The likeliest first, those that fit before the others. Only what fits is also held to the relabelled case."""
    plain = [i for i, case in enumerate(cases) if not case.rotated]
    some, counts = [cases[i] for i in plain], [outcomes[i] for i in plain]
    found = [scored(fitted(mutant, some, counts), some, counts) for mutant in mutants]
    first = _seen([one for one in found if one is not None], some)
    whole = [(one, scored(one.mutant, cases, outcomes)) for one in first if one.fit >= FIT]
    return ranked(first, [again or one for one, again in whole])


def _seen(found: list[Scored], cases: Sequence[Case]) -> list[Scored]:
    """`found`, where the outcomes are not an exact verifier's: then what gives just these here explains nothing.

    Such mistakes show between rows, or with other labels. Their law is estimated, so a small bias would fit it that the
    exact law is known too well to fit.
    """
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
    """Whether steps of `mutant`, which has no law, are right one by one."""
    if mutant.family == randomness.FAMILY:  # its steps are no independent draws to be compared with a law
        return True
    counts = []
    for case in cases:
        own = predict(mutant, case)
        if own is None or own.draws is None:
            return False
        counts.append(np.rint(own.law * own.draws[:, None, None]).astype(np.int64))
    exact = scored(EXACT, cases, counts)
    return exact is not None and exact.fit >= FIT


def _told_apart_by_tables(
    ranking: list[Scored], subject: VerifierSubject, failed: Sequence[CaseResult], level: str
) -> list[Scored]:
    """`ranking` again, those that are alike ordered by the tables that the audit rejected.

    Where an exact verifier would give these outcomes too, they say nothing, and all that fits them is held to the tables.
    """
    tied = [one for one in ranking if one.fit >= FIT] if _exact_fits(ranking) else alike(ranking)
    if len(tied) < 2 and not _exact_fits(ranking):
        return ranking
    worst = sorted(failed, key=lambda result: -result.largest_log10_e)[:2]
    rescored = []
    for one in tied:
        gain, fit = 0.0, one.fit
        for result in worst:
            more, p_value = _by_tables(one.mutant, subject, result, level)
            gain, fit = gain + more, min(fit, p_value)
        rescored.append(Scored(one.mutant, one.log_likelihood + gain, fit))
    return ordered(rescored) + [one for one in ranking if one not in tied]


def _exact_fits(ranking: Sequence[Scored]) -> bool:
    return any(one.mutant is EXACT and one.fit >= FIT for one in ranking)


def _between_steps(mutants: Sequence[Mutant], place: Place, steps: int) -> Diagnosis:
    """Of the mistakes without a law of a step, those that make the same steps depend on each other.

    Such steps are no independent draws, so their outcomes are not judged.
    """
    seen, ranking = place.run(jobs.shared_noise), []
    for mutant in (mutant for mutant in mutants if mutant.law is None):
        found = signature(mutant.function, PLAIN, TIMEOUT)
        amiss = _amiss(found, seen)
        ranking.append(Scored(mutant, -100.0 * amiss, float(amiss == 0)))
    ranking.sort(key=lambda one: -one.log_likelihood)
    return conclusion(ranking, EXACT, steps, "", "")


def _amiss(mutant: Signature | None, seen: Signature | None) -> int:
    """In how many of the pairs that were seen `mutant` differs; in all of them, where nothing can be compared."""
    if mutant is None or seen is None:
        return len(mutant or seen or (None,))
    return sum(mutant[pair] != agree for pair, agree in seen.items())


def _plan_of(subject: VerifierSubject, result: CaseResult, level: str) -> Plan:
    """The plan of the case that gave `result`."""
    return subject.plan([case.name for case in subject.cases].index(result.case), level)


def _by_tables(
    mutant: Mutant, subject: VerifierSubject, result: CaseResult, level: str
) -> tuple[float, float]:
    """(log-likelihood, p-value of the fit) of the rejected tables of `result`, the mutant being run for its own counts."""
    plan = _plan_of(subject, result, level)
    case = next(case for case in subject.cases if case.name == result.case)
    source = verified(mutant.function, PLAIN, case, subject.timeout)
    tally, steps = AuditTally(case, Claim(None, case.tree)), min(plan.steps, COMPARED_STEPS)
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
    return total, fit_of(statistic, df)


def _two_samples(a: Ints, b: Ints) -> tuple[float, int]:
    """Pearson's chi-square of two samples of one law, on the cells that either reached ten times."""
    kept = a + b >= 10
    n, m = a.sum(), b.sum()
    if kept.sum() < 2 or not n or not m:
        return 0.0, 0
    x, y = a[kept], b[kept]
    return float(((x * np.sqrt(m / n) - y * np.sqrt(n / m)) ** 2 / (x + y)).sum()), int(kept.sum()) - 1


def _off_the_path(mutants: Sequence[Mutant], cases: Sequence[Case]) -> Diagnosis:
    """For a verifier that emits tokens nobody drafted: the known mistakes that do so too."""
    ranking = [Scored(one, 0.0, 1.0) for one in mutants if any(leaves_the_path(one, case) for case in cases)]
    return conclusion(ranking, EXACT, 0, "", "") if ranking else Diagnosis((), (), 0, "", "")


# --- evidence --------------------------------------------------------------------------------------------


def _evidence(
    best: Scored, cases: Sequence[Case], outcomes: Sequence[Ints], place: Place, root: int
) -> tuple[str, str]:
    """The outcome that tells the mistake from an exact verifier best, and one step where it happened."""
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
        f"{100 * share:.4g} % emitted token {token} (this bug: {100 * predicted:.4g} %; an exact token-wise verifier: "
        f"{100 * right:.4g} %)."
    )
    step = place.run(jobs.find_outcome, case.name, case_key(root, case.name), (code, accepted, token))
    where = ""
    if step is not None:
        name = place.subject.name
        where = f"One such step: specsim audit replay {name} --case {case.name!r} --step {step} --seed {root}"
    return text, where
