"""Runs the battery: plans every case, sets the error budget, draws, judges."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, replace

from specsim.auditing._cases.battery import LEVELS
from specsim.auditing._checks.contract_checks import PROMISES, check_promises, promises_result
from specsim.auditing._checks.proof import prove_on_generated_models
from specsim.auditing._checks.subjects import DecoderSubject, RuleSubject, Subject, VerifierSubject
from specsim.auditing._checks.trial import Trial, case_key, offset, run_trial
from specsim.auditing._diagnosis import diagnose_chain, diagnose_decoder
from specsim.auditing._execution.child_process import AGAIN
from specsim.auditing._execution.execution import Place, placed
from specsim.auditing._results import BUDGET, Audit, CaseResult, Diagnosis, Finding
from specsim.auditing._verifier.calls import TIMEOUT
from specsim.auditing._verifier.contract import BrokenVerifier, NotADraftPath, Verifier
from specsim.core._kernels import available_threads
from specsim.core._provenance import Provenance
from specsim.core._streams import Key, RandomSource, root_of
from specsim.rules import Rule
from specsim.simulation._counting import Progress
from specsim.simulation._executors import workers_of

__all__ = ["CaseJob", "audit", "case_results", "check_limits", "check_promises_at"]


def audit(
    verifier: str | Rule | Verifier = "standard",
    level: str = "quick",
    rng: RandomSource = None,
    *,
    seconds: float | None = None,
    timeout: float = TIMEOUT,
    threads: int | None = None,
    executor: Executor | str | None = None,
    fail_fast: bool = False,
    diagnose: bool = True,
    progress: Progress | None = None,
) -> Audit:
    """Test whether `verifier` emits the law that it claims, with a stated false-alarm rate and a stated power.

    `verifier` is the name of a built-in rule, a `Rule`, "package.module:function", or a function

        verifier(draft_tokens int64[B, γ], p float64[B, γ+1, V], q float64[B, γ, V], rng) -> int[B, γ+1]

    whose rows are the accepted tokens and one more, padded with -1; what more it may take, or otherwise, it says with
    `specsim.auditing.declares`. Rules for several drafts are given pairs of chains. A lossy rule is held to the law
    that it declares. `level` is one of `LEVELS`, each a fixed number of steps; with `seconds` a slow verifier is given
    about that much time, an equal share for every case, and what it could have shown is printed. A rule is
    also proved, by enumeration in fractions. The probability that an exact verifier is called biased is at most
    `BUDGET`, whenever it stops. The same `rng` seed gives the same counts.

    The steps of a built-in rule can be counted elsewhere, by `executor`, which is as in `specsim.simulate`, and so can the
    cases of a verifier given by name, each by one worker, in a process of its own; `seconds` are then those of all workers
    together.

    With `fail_fast` the first case that fails, or a promise broken before them, is the last one of the result.

    When somebody's verifier of chains or decoder fails, `diagnose` compares it with the catalogue of known mistakes
    (`specsim.auditing.mutants`), for which more steps are drawn.

    A verifier given by name runs in a process of its own; one call may take `timeout` seconds. Ctrl-C ends the audit
    with the verdict so far, marked as such.

    Raises ValueError for an unknown rule, level or module, and for a function together with an executor. What goes wrong inside the verifier is not raised:
    it is the verdict `broken`.

    >>> result = audit("standard", level="smoke", rng=0)
    >>> str(result.verdict)
    'consistent'
    """
    check_limits(level, seconds, timeout)
    threads = available_threads(threads)
    with (
        workers_of(executor, threads) as workers,
        placed(verifier, threads, timeout, workers) as place,
    ):
        found = _audit(place, level, root_of(rng), seconds, fail_fast, progress)
        return replace(found, diagnosis=_diagnosis(place, found)) if diagnose else found


def check_limits(level: str, seconds: float | None, timeout: float) -> None:
    """Raise ValueError for an unknown level, and for times that are not positive."""
    if level not in LEVELS:
        raise ValueError(f"unknown level {level!r}; one of {', '.join(LEVELS)}")
    for name, limit in (("seconds", seconds), ("timeout", timeout)):
        if limit is not None and not 0 < limit < math.inf:
            raise ValueError(f"{name}: {limit} is not a positive number of seconds")


@dataclass(frozen=True)
class CaseJob:
    """A case to run, as a child process is told: its number, and how; `patience` is a share of the time-out."""

    index: int
    level: str
    key: Key
    alarm: float
    seconds: float | None = None
    patience: float = 1.0


def _audit(
    place: Place,
    level: str,
    root: int,
    seconds: float | None,
    fail_fast: bool,
    progress: Progress | None,
) -> Audit:
    started, subject = time.perf_counter(), place.subject
    trials = [subject.trial(i, level) for i in range(len(subject.cases))]
    tests = sum(trial.tests for trial in trials)
    promises: list[CaseResult] = []
    found: dict[int, CaseResult] = {}
    interrupted = False
    share = None if seconds is None else seconds / len(trials)
    jobs = (
        CaseJob(
            i,
            level,
            case_key(root, trial.case),
            BUDGET / tests,
            share,
            _patience([*promises, *found.values()]),
        )
        for i, trial in enumerate(trials)
    )
    try:
        if isinstance(subject, VerifierSubject):
            promises.append(check_promises_at(place, case_key(root, PROMISES)))
        if not (fail_fast and any(result.findings for result in promises)):
            for i, result in case_results(place, dict(enumerate(trials)), jobs, progress):
                found[i], interrupted = result, result.interrupted
                if interrupted or (fail_fast and _first_failing(found) is not None):
                    break
    except KeyboardInterrupt:
        interrupted = True
    last = _first_failing(found) if fail_fast else None
    results = [*promises, *(found[i] for i in sorted(found) if last is None or i <= last)]
    return Audit(
        verifier=subject.name,
        level=level,
        cases=tuple(results),
        proof=prove_on_generated_models(subject.rule) if isinstance(subject, RuleSubject) else None,
        budget=BUDGET,
        tests=tests,
        interrupted=interrupted,
        provenance=Provenance.record(root, subject.threads, time.perf_counter() - started),
    )


def case_results(
    place: Place, trials: Mapping[int, Trial], jobs: Iterable[CaseJob], progress: Progress | None
) -> Iterator[tuple[int, CaseResult]]:
    """The number and the result of each of `jobs`, for the cases `trials`: one by one, or on workers, as they come."""
    total, done = sum(trial.steps for trial in trials.values()), 0
    if place.run_each is None:
        outcomes = _one_by_one(place, trials, jobs, progress, total)
    else:
        given = list(jobs)
        outcomes = ((given[i], outcome) for i, outcome in place.run_each(_run_case, given))
    for job, outcome in outcomes:
        trial = trials[job.index]
        if isinstance(outcome, BrokenVerifier):  # it took its process along
            outcome = run_trial(trial, job.key, job.alarm, failure=outcome)
        yield job.index, outcome
        done += trial.steps
        if progress is not None:
            progress(done, total)


def _one_by_one(
    place: Place,
    trials: Mapping[int, Trial],
    jobs: Iterable[CaseJob],
    progress: Progress | None,
    total: int,
) -> Iterator[tuple[CaseJob, CaseResult | BrokenVerifier]]:
    before = 0
    for job in jobs:
        try:
            yield job, place.run(_run_case, job, progress=offset(progress, before, total))
        except BrokenVerifier as error:
            yield job, error
        before += trials[job.index].steps


def _first_failing(found: Mapping[int, CaseResult]) -> int | None:
    """The first case that fails, if all before it are known."""
    for i in range(len(found)):
        if i not in found:
            return None
        if found[i].findings:
            return i
    return None


def _patience(results: Iterable[CaseResult]) -> float:
    """Once calls have hung, the others are not waited for as long."""
    return AGAIN if any("hung: " in finding.text for one in results for finding in one.findings) else 1.0


def _diagnosis(place: Place, found: Audit) -> Diagnosis | None:
    failed = [case for case in found.cases if case.findings and not case.broken and case.case != PROMISES]
    root, subject = found.provenance.root, place.subject
    if not failed or found.interrupted:
        return None
    try:
        if isinstance(subject, DecoderSubject):
            return diagnose_decoder(place, failed, root)
        if isinstance(subject, VerifierSubject) and not subject.declared.tree:
            return diagnose_chain(place, failed, found.level, root)
    except (BrokenVerifier, NotADraftPath, KeyboardInterrupt):
        pass
    except Exception as error:  # it is ours, and must not cost the verdict
        warnings.warn(f"the diagnosis failed ({error!r}); the verdict stands", RuntimeWarning, stacklevel=3)
    return None


# --- jobs, which a child process may be given ------------------------------------------------------------


def _run_case(subject: Subject, job: CaseJob, progress: Progress | None = None) -> CaseResult:
    if not isinstance(subject, RuleSubject):
        subject = replace(subject, timeout=subject.timeout * job.patience)
    trial = subject.trial(job.index, job.level)
    return run_trial(trial, job.key, job.alarm, seconds=job.seconds, progress=progress)


def _check(subject: VerifierSubject, key: Key, progress: Progress | None = None) -> CaseResult:
    return check_promises(subject.function, subject.declared, key, subject.timeout)


def check_promises_at(place: Place, key: Key) -> CaseResult:
    """The result of what a verifier promises, checked where it runs."""
    try:
        found: CaseResult = place.run(_check, key)
    except BrokenVerifier as error:
        found = promises_result([Finding("contract", str(error))], broken=True)
    return found
