"""Runs the battery: plans every case, sets the error budget, has steps counted, looks at the counts, judges.

All of this is done here. The verifier may run elsewhere (`_execution.py`), where steps are counted and nothing else
(`_jobs.py`).
"""

from __future__ import annotations

import math
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from specsim.auditing import _jobs as jobs
from specsim.auditing import _results
from specsim.auditing._cases.battery import LEVELS, case_key
from specsim.auditing._checks.contract_checks import PROMISES, promises_result
from specsim.auditing._checks.findings import judge_case, rejects_early
from specsim.auditing._checks.proof import prove_on_generated_models
from specsim.auditing._checks.subjects import DecoderSubject, RuleSubject, VerifierSubject
from specsim.auditing._checks.tables import Plan, looks
from specsim.auditing._diagnosis.decoders import diagnose_decoder
from specsim.auditing._diagnosis.verifiers import diagnose_chain
from specsim.auditing._execution import AGAIN, Place, placed
from specsim.auditing._report.figures import draw_deviation, worst_tables
from specsim.auditing._report.text import audit_parts
from specsim.auditing._results import BUDGET, CaseResult, Diagnosis
from specsim.auditing._verifier.calls import TIMEOUT
from specsim.auditing._verifier.contract import BrokenVerifier, NotADraftPath, Verifier
from specsim.core._kernels import available_threads
from specsim.core._plotting import axes_or_new
from specsim.core._provenance import Provenance
from specsim.core._streams import RandomSource, root_of
from specsim.core._tables import Piece
from specsim.rules import Rule
from specsim.simulation._counting import Failure, Partial, Progress, offset
from specsim.simulation._executors import workers_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Where the first pieces of a case end whose time is limited: compiled after one, its pace known after the other.
PACE_STEPS = (8, 16)


class Audit(_results.Audit):
    """The result of `specsim.audit`, which shows itself in Jupyter."""

    def parts(self) -> Iterator[Piece]:
        return audit_parts(self)

    def plot(self, ax: Axes | None = None) -> Axes:
        """The table with the largest e-value: observed over expected counts in its cells."""
        worst = worst_tables(self)
        if not worst:
            raise ValueError("no table can be plotted: no case has a table of at most 64 cells")
        return draw_deviation(axes_or_new(ax), worst[0])


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


def _audit(
    place: Place,
    level: str,
    root: int,
    seconds: float | None,
    fail_fast: bool,
    progress: Progress | None,
) -> Audit:
    started, subject = time.perf_counter(), place.subject
    plans = [subject.plan(index, level) for index in range(len(subject.cases))]
    tests = sum(plan.tests for plan in plans)
    share = None if seconds is None else seconds / len(plans)
    promises: list[CaseResult] = []
    found: dict[str, CaseResult] = {}
    interrupted = False

    def begin(plan: Plan) -> CaseRun:
        # once calls have hung, the others are not waited for as long
        texts = (finding.text for one in (*promises, *found.values()) for finding in one.findings)
        patience = AGAIN if any("hung: " in text for text in texts) else 1.0
        return CaseRun(plan, root, BUDGET / tests, seconds=share, patience=patience)

    try:
        if isinstance(subject, VerifierSubject):
            promises.append(promises_result(check_promises_at(place, root)))
        if not (fail_fast and any(result.findings for result in promises)):
            for run in run_cases(place, plans, begin, progress):
                found[run.plan.case.name], interrupted = run.result(), run.interrupted
                if interrupted or (fail_fast and _first_failing(plans, found) is not None):
                    break
    except KeyboardInterrupt:
        interrupted = True
    last = _first_failing(plans, found) if fail_fast else None
    names = [plan.case.name for plan in plans[: None if last is None else last + 1]]
    return Audit(
        verifier=subject.name,
        level=level,
        cases=(*promises, *(found[name] for name in names if name in found)),
        proof=prove_on_generated_models(subject.rule) if isinstance(subject, RuleSubject) else None,
        budget=BUDGET,
        tests=tests,
        interrupted=interrupted,
        provenance=Provenance.record(root, subject.threads, time.perf_counter() - started),
    )


def _first_failing(plans: Sequence[Plan], found: Mapping[str, CaseResult]) -> int | None:
    """The first case that fails, if all before it are known."""
    for i, plan in enumerate(plans):
        if plan.case.name not in found:
            return None
        if found[plan.case.name].findings:
            return i
    return None


def check_promises_at(place: Place, root: int) -> Partial:
    """What a verifier promises, checked where it runs: the promises that it breaks are the failures."""
    try:
        found: Partial = place.run(jobs.check, case_key(root, PROMISES))
    except BrokenVerifier as error:
        found = Partial({}, failures=(Failure("contract", str(error)),))
    return found


# --- cases -----------------------------------------------------------------------------------------------


class CaseRun:
    """A case that is being counted: which steps come next, what was counted so far, and whether that is enough.

    It is looked at eight times, and ends early only to reject, each test at false-alarm probability `alarm`. With a limit in
    `seconds` a few steps are counted first to learn the pace; the very first, which may compile, are not timed.
    """

    def __init__(
        self, plan: Plan, root: int, alarm: float, *, seconds: float | None = None, patience: float = 1.0
    ):
        self.plan, self.alarm, self.interrupted = plan, alarm, False
        self.total = plan.nothing
        self._key, self._seconds, self._patience = case_key(root, plan.case.name), seconds, patience
        self._end, self._ends = 0, iter([*(PACE_STEPS if seconds else ()), *looks(plan.steps)])
        self._before_pace = 0.0

    def next(self) -> jobs.Steps | None:
        """The steps to be counted next; None at the end."""
        done = self.total.steps
        for end in self._ends:
            until = min(self.plan.steps, self._affordable(end, done))
            if until > done:
                self._end = end
                return jobs.Steps(self.plan.case.name, self._key, done, until - done, self._patience)
        return None

    def add(self, partial: Partial) -> None:
        """What was counted of those steps; then a look."""
        self.total += partial
        counts, done = self.total.counts, self.total.steps
        if self._seconds and done == PACE_STEPS[0]:
            self._before_pace = self.total.seconds
        looked = self._end not in PACE_STEPS and done < self.plan.steps
        if partial.failures or (looked and rejects_early(self.plan.tables, counts, self.alarm)):
            self._ends = iter(())

    def died(self, error: BrokenVerifier) -> None:
        """The verifier took its process along, and the case with it."""
        self.total = self.plan.nothing
        self.add(Partial({}, failures=(Failure("contract", str(error)),)))

    def result(self) -> CaseResult:
        """What is known so far; the steps up to the last look count."""
        return judge_case(self.plan, self.total, self.alarm, self.interrupted)

    def _affordable(self, until: int, done: int) -> int:
        """`until`, or as many steps as fit into the seconds at the pace since the first ones; a multiple of 8."""
        first = PACE_STEPS[0]
        if self._seconds is None or done <= first:
            return until
        elapsed = self.total.seconds - self._before_pace
        return min(until, first + int((done - first) * self._seconds / elapsed) // 8 * 8)


def run_case(place: Place, run: CaseRun, progress: Progress | None = None) -> CaseRun:
    """Count a case to its end, or until Ctrl-C."""
    try:
        while (steps := run.next()) is not None:
            try:
                run.add(
                    place.run(jobs.count_case, steps, progress=offset(progress, steps.first, run.plan.steps))
                )
            except BrokenVerifier as error:
                run.died(error)
    except KeyboardInterrupt:
        run.interrupted = True
    return run


def run_cases(
    place: Place, plans: Sequence[Plan], begin: Callable[[Plan], CaseRun], progress: Progress | None
) -> Iterator[CaseRun]:
    """Each of `plans`, begun and counted: one by one, or side by side on workers, as they come."""
    total, done = sum(plan.steps for plan in plans), 0
    if place.run_each is None:
        runs: Iterator[CaseRun] = (
            run_case(place, begin(plan), offset(progress, done, total)) for plan in plans
        )
    else:
        runs = _side_by_side(place.run_each, [begin(plan) for plan in plans])
    for run in runs:
        yield run
        done += run.plan.steps
        if progress is not None:
            progress(done, total)


def _side_by_side(
    run_each: Callable[..., Iterator[tuple[Any, Any]]], runs: Sequence[CaseRun]
) -> Iterator[CaseRun]:
    named, ready = {run.plan.case.name: run for run in runs}, deque(run.next() for run in runs)

    def next_call() -> tuple[Any, Any] | None:
        return (jobs.count_case, ready.popleft()) if ready else None

    for steps, outcome in run_each(next_call, len(runs)):
        run = named[steps.case]
        if isinstance(outcome, BrokenVerifier):
            run.died(outcome)
        else:
            run.add(outcome)
        if (following := run.next()) is None:
            yield run
        else:
            ready.append(following)


# --- after a failure -------------------------------------------------------------------------------------


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
