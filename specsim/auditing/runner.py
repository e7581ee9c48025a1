"""Runs the battery: plans every case, sets the error budget, draws, judges."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any
from zlib import crc32

from specsim import rules
from specsim.auditing.calls import TIMEOUT
from specsim.auditing.cases import LEVELS
from specsim.auditing.contract import BrokenVerifier, Verifier
from specsim.auditing.isolation import Child
from specsim.auditing.promises import PROMISES, check_promises, promises_result
from specsim.auditing.proof import prove_on_generated_models
from specsim.auditing.results import BUDGET, Audit, CaseResult, Finding
from specsim.auditing.subjects import RuleSubject, Subject, VerifierSubject, verifier_subject
from specsim.auditing.trials import offset, run_trial
from specsim.engine import Progress
from specsim.jit import available_threads
from specsim.provenance import Provenance
from specsim.streams import Key, RandomSource, key_of, root_of

__all__ = ["audit"]


def audit(
    verifier: str | Verifier = "standard",
    level: str = "quick",
    rng: RandomSource = None,
    *,
    seconds: float | None = None,
    timeout: float = TIMEOUT,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Audit:
    """Test whether `verifier` emits the law that it claims, with a stated false-alarm rate and a stated power.

    `verifier` is the name of a built-in rule, "package.module:function", or a function

        verifier(draft_tokens int64[B, γ], p float64[B, γ+1, V], q float64[B, γ, V], rng) -> int[B, γ+1]

    whose rows are the accepted tokens and one more, padded with -1; what more it may take, or otherwise, it says with
    `specsim.auditing.declares`. Rules for several drafts are given pairs of chains. A lossy rule is held to the law
    that it declares. `level` is one of `LEVELS`, each a fixed number of steps; with `seconds` a slow verifier is given
    about that much time, an equal share for every case, and what it could have shown is printed. A built-in rule is
    also proved, by enumeration in fractions. The probability that an exact verifier is called biased is at most
    `BUDGET`, whenever it stops. The same `rng` seed gives the same counts.

    A verifier given by name runs in a process of its own; one call may take `timeout` seconds. Ctrl-C ends the audit
    with the verdict so far, marked as such.

    Raises ValueError for an unknown rule, level or module. What goes wrong inside the verifier is not raised:
    it is the verdict `broken`.

    >>> result = audit("standard", level="smoke", rng=0)
    >>> str(result.verdict)
    'consistent'
    """
    if level not in LEVELS:
        raise ValueError(f"unknown level {level!r}; one of {', '.join(LEVELS)}")
    for name, limit in (("seconds", seconds), ("timeout", timeout)):
        if limit is not None and not limit > 0:
            raise ValueError(f"{name}: {limit} is not a positive number of seconds")
    if isinstance(verifier, str) and not _is_rule(verifier):
        child = Child(verifier, timeout)
        place: Any = closing(child)
        plan: Subject = VerifierSubject(verifier, _not_here, child.declared, timeout)
        execute: Callable[..., Any] = child.run
    else:
        place, plan = nullcontext(), _subject(verifier, available_threads(threads), timeout)
        execute = partial(_here, plan)
    with place:
        return _audit(plan, execute, level, root_of(rng), seconds, progress)


def _is_rule(name: str) -> bool:
    return ":" not in name or name.partition(":")[0] in rules.names()


def _subject(verifier: str | Verifier, threads: int, timeout: float) -> Subject:
    if isinstance(verifier, str):
        return RuleSubject(rules.get(verifier), threads)
    if not callable(verifier):
        raise TypeError(f"verifier: expected a rule's name or a function, got {type(verifier).__name__}")
    name = f"{getattr(verifier, '__module__', '?')}:{getattr(verifier, '__qualname__', repr(verifier))}"
    return verifier_subject(verifier, name, timeout)


def _not_here(*_: Any) -> Any:
    raise AssertionError("the verifier runs in a process of its own")


def _here(
    subject: Subject, job: Callable[..., Any], *arguments: Any, progress: Progress | None = None
) -> Any:
    return job(subject, *arguments, progress=progress)


@dataclass(frozen=True)
class _Job:
    """A case to run, as a child process is told."""

    index: int
    level: str
    key: Key
    alarm: float
    seconds: float | None


def _audit(
    subject: Subject,
    execute: Callable[..., Any],
    level: str,
    root: int,
    seconds: float | None,
    progress: Progress | None,
) -> Audit:
    started = time.perf_counter()
    trials = [subject.trial(i, level) for i in range(len(subject.cases))]
    tests = sum(trial.tests for trial in trials)
    total = sum(trial.steps for trial in trials)
    results: list[CaseResult] = []
    interrupted = False
    share = None if seconds is None else seconds / len(trials)
    try:
        if isinstance(subject, VerifierSubject):
            results.append(_promises(execute, _key(root, PROMISES)))
        for i, trial in enumerate(trials):
            job = _Job(i, level, _key(root, trial.case), BUDGET / tests, share)
            before = sum(earlier.steps for earlier in trials[:i])
            try:
                result = execute(_run_case, job, progress=offset(progress, before, total))
            except BrokenVerifier as error:  # it took its process along
                result = run_trial(trial, job.key, job.alarm, failure=error)
            results.append(result)
            if interrupted := result.interrupted:
                break
    except KeyboardInterrupt:
        interrupted = True
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


def _key(root: int, case: str) -> Key:
    return key_of(root, (crc32(b"audit"), crc32(case.encode())))


# --- jobs, which a child process may be given ------------------------------------------------------------


def _run_case(subject: Subject, job: _Job, progress: Progress | None = None) -> CaseResult:
    trial = subject.trial(job.index, job.level)
    return run_trial(trial, job.key, job.alarm, seconds=job.seconds, progress=progress)


def _check(subject: VerifierSubject, key: Key, progress: Progress | None = None) -> CaseResult:
    return check_promises(subject.function, subject.declared, key, subject.timeout)


def _promises(execute: Callable[..., Any], key: Key) -> CaseResult:
    try:
        found: CaseResult = execute(_check, key)
    except BrokenVerifier as error:
        found = promises_result([Finding("contract", str(error))], broken=True)
    return found
