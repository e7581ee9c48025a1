"""Run the battery: plan every case, set the error budget, count steps, test the counts, judge.

Everything runs here but the verifier, which may be in a child process (`_verifier/child.py`)."""

from __future__ import annotations

import math
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

from specsim.adapters._contract import BrokenVerifier, NotADraftPath, Verifier
from specsim.auditing._cases.battery import LEVELS, case_key
from specsim.auditing._cases.shapes import ShapesCase
from specsim.auditing._checks.concentration import Candidate, choose, kind_of, steps_needed, too_slow
from specsim.auditing._checks.contract_checks import PROMISES, check_promises, promises_result
from specsim.auditing._checks.findings import evidence, judge_case
from specsim.auditing._checks.proof import prove_on_generated_models
from specsim.auditing._checks.subjects import RuleSubject, Subject, VerifierSubject
from specsim.auditing._checks.tables import LOOKS, Plan, interim_looks
from specsim.auditing._diagnosis.diagnose import diagnose_edge_case, diagnose_failed
from specsim.auditing._diagnosis.posterior import OutOfTime
from specsim.auditing._execution import Execution, Steps, count_case, open_execution, with_pair
from specsim.auditing._report.audit import Audit
from specsim.auditing._results.audit import BUDGET, WANTED_TV, CaseResult, Diagnosis, Finding
from specsim.auditing._side_by_side.processes import Told, count_on_processes
from specsim.auditing._side_by_side.spans import count_side_by_side
from specsim.auditing._verifier.arrays import Device
from specsim.auditing._verifier.calls import TIMEOUT
from specsim.core._checks import check_seconds
from specsim.core._kernels import available_threads
from specsim.core._progress import Progress, ShowProgress, shows_progress, told
from specsim.core._provenance import Provenance
from specsim.core._streams import RandomSource, root_of
from specsim.rules import Rule
from specsim.simulation._counting import Failure, Partial, offset
from specsim.simulation._executors import workers_of

#: Ends of the first pieces of a case with limited time: the first compiles, the second measures the pace.
PACE_STEPS = (8, 16)
#: Shares of a time limit that all cases have had, each as much as the others, at the end of each round. What
#: cases leave goes to the one whose evidence is nearest to an alarm, in pieces of at least that share.
ROUNDS, PIECE = (0.1, 0.25, 0.5, 1.0), 0.05
#: Cases that break the contract alike, after which the others are not begun.
ALIKE = 3
#: How many times the steps that raised an alarm are drawn to find the table that deviates.
SHOWN = 4
#: Share of a time limit for the tests; the rest is for the diagnosis of what they find.
TESTING = 0.8
#: Seconds that a diagnosis may take where the tests took fewer; else it takes as long as they at most.
DIAGNOSIS = 20.0
#: Evidence, as a share of what rejects, from which on a case goes on beyond its planned steps.
NEAR = 0.5
#: Share of a device's free memory that the rows of a call may take; verifiers make copies of them.
FOR_ROWS = 0.25
#: Share of the time-out that the calls of later cases get after one has hung.
AGAIN = 0.1
#: A call hangs only if it takes this many times as long as all steps that are asked for would at the measured
#: pace: the calls of a slow verifier grow like those of others.
SLOWER = 4.0


@shows_progress("audit")
def audit(
    verifier: str | Rule | Verifier = "standard",
    level: str = "quick",
    *,
    rng: RandomSource = None,
    pair: Any = None,
    seconds: float | None = None,
    cases: Sequence[str] | None = None,
    wanted_tv: float = WANTED_TV,
    timeout: float = TIMEOUT,
    threads: int | None = None,
    executor: Executor | str | None = None,
    device: str | None = None,
    fail_fast: bool = False,
    diagnose: bool = True,
    progress: ShowProgress = None,
) -> Audit:
    """Test whether the output of `verifier` has the claimed law, at a stated false-alarm rate and power.

    An exact verifier is called biased with probability at most `BUDGET`, whenever the audit stops. Built-in
    rules are also proved, by enumeration in fractions. Ctrl-C ends the audit with the verdict so far.

    Parameters
    ----------
    verifier : str, Rule or callable
        A built-in rule, "package.module:function", which runs in a child process, or a function
        verifier(draft_tokens int64[B, γ], p float64[B, γ+1, V], q float64[B, γ, V], rng) -> int[B, γ+1],
        whose rows are the accepted tokens and one more, padded with -1. `declares` changes these arguments. A
        lossy rule is tested against its declared law.
    level : {"smoke", "quick", "standard", "deep"}
        The number of steps of each case, see `LEVELS`.
    rng : int, Generator, SeedSequence or None
        The same seed gives the same counts.
    pair : Pair or (target, draft), optional
        Rows of your own for one case more, from `specsim.read_pair`: pmfs [V], or models. Not for decoders,
        and not with an executor.
    seconds : float, optional
        Time limit, the diagnosis included, divided equally among the cases; what some leave goes to the case
        whose evidence is nearest to an alarm. If less than half of the cases would have the wanted power,
        it goes to those that can have it, and the others are left out. With an executor it is the time of
        all workers together.
    cases : sequence of str, optional
        The names of the cases to run, for a slow verifier; all by default.
    wanted_tv : float
        The total variation of the first token, in (0, 1], that must be detectable at half of the cases;
        otherwise the verdict is `inconclusive` unless something is found.
    timeout : float
        Seconds after which one call of the verifier counts as hanging; a slow verifier, as the calls before
        show, has more for calls of many rows.
    threads : int, optional
        Threads of a built-in rule, or processes of a verifier given by name, at most four, which count the
        cases of a long audit side by side; all cores by default.
    executor : Executor or str, optional
        Counts the steps of a built-in rule or of a verifier given by name, as in `specsim.simulate`.
    device : str, optional
        Where the rows of a verifier of torch, JAX or CuPy arrays are, in place of what it declares: "cuda",
        "cuda:1", "cpu", or another name that its library knows. On another device than the CPU there is a
        case of calls of 4,096 rows over 131,072 tokens too; all others have the calls and the random numbers
        that they have on the CPU. Not with an executor.
    fail_fast : bool
        Stop after the first case that fails.
    diagnose : bool
        Draw more steps of a biased verifier of chains or decoder, and compare them with
        `specsim.mistakes`.
    progress : bool or callable, optional
        A bar by default, as in `specsim.simulate`. A function is called as progress(steps done,
        steps in all).

    Returns
    -------
    Audit
        Verdict, findings and measurements. An error inside the verifier gives the verdict `broken`.

    Raises
    ------
    ValueError
        If the rule, level, module, case or executor is unknown, a function is combined with an executor, the
        pair is none that the verifier takes, or the device is not there, has no arrays of the library that
        the verifier declares, or has no room for the rows of a call.

    Examples
    --------
    >>> result = audit("standard", level="smoke", rng=0)
    >>> str(result.verdict)
    'consistent'
    """
    check_limits(level, seconds, timeout, wanted_tv)
    threads, started = available_threads(threads), time.perf_counter()
    with (
        workers_of(executor, threads) as workers,
        open_execution(verifier, threads, timeout, workers, device) as execution,
    ):
        if pair is not None:
            execution = with_pair(execution, pair)
        plans = chosen_plans(execution.subject, level, cases)
        if execution.device is not None:
            check_room(execution.device, [plan.case for plan in plans])
        limit = None if seconds is None else Limit(started, seconds * TESTING if diagnose else seconds)
        found = _audit(execution, plans, level, root_of(rng), limit, wanted_tv, fail_fast, told(progress))
        if diagnose:
            took = time.perf_counter() - started
            left = max(took, DIAGNOSIS) if seconds is None else seconds - took
            found = replace(found, diagnosis=diagnosis_of(execution, found, time.monotonic() + left))
        whole = replace(found.provenance, seconds=time.perf_counter() - started)
        return replace(found, provenance=whole)


def chosen_plans(subject: Subject, level: str, cases: Sequence[str] | None) -> list[Plan]:
    """The plans of the cases of these names, by default all. Raises ValueError for an unknown one."""
    if cases is None:
        return subject.plans(level)
    if isinstance(cases, str):
        raise TypeError(f"cases: expected a sequence of names, got the text {cases!r}")
    names = [case.name for case in subject.cases]
    unknown = [name for name in cases if name not in names]
    if unknown or not cases:
        said = f"{unknown[0]!r} is none of the audit's cases" if unknown else "name some of the audit's cases"
        raise ValueError(f"cases (--case): {said}: {', '.join(map(repr, names))}")
    return [subject.plan(index, level) for index, name in enumerate(names) if name in cases]


def check_room(device: Device, cases: Sequence[Any]) -> None:
    """Raise ValueError if a part of the free memory of `device` is too small for the rows of a call."""
    shaped = [case for case in cases if isinstance(case, ShapesCase)]
    if device.free is None or not shaped:
        return
    largest = max(shaped, key=lambda case: case.largest_call)
    if largest.largest_call > device.free * FOR_ROWS:
        rows, free = (size / 2**30 for size in (largest.largest_call, device.free))
        raise ValueError(
            f"device: a call of the case {largest.name!r} has {rows:.1f} GiB of rows, and the {device.name} "
            f"has {free:.1f} GiB free, of which a quarter is for rows and the rest for what the verifier "
            "makes of them; declare a smaller batch, name other cases (--case), or leave device out, to "
            "audit on the CPU"
        )


@dataclass(frozen=True)
class Limit:
    """A time limit: `seconds` from `started`, a time of `time.perf_counter`."""

    started: float
    seconds: float

    def left(self) -> float:
        return self.started + self.seconds - time.perf_counter()


def check_limits(
    level: str, seconds: float | None = None, timeout: float = TIMEOUT, wanted_tv: float = WANTED_TV
) -> None:
    """Raise ValueError for an unknown level, times that are not positive, and a TV outside (0, 1]."""
    if level not in LEVELS:
        raise ValueError(f"unknown level {level!r}; one of {', '.join(LEVELS)}")
    for name, limit in (("seconds", seconds), ("timeout", timeout)):
        if limit is not None:
            check_seconds(name, limit)
    if not 0 < wanted_tv <= 1:
        raise ValueError(f"wanted_tv: {wanted_tv} is not a total variation in (0, 1]")


def _audit(
    execution: Execution,
    plans: Sequence[Plan],
    level: str,
    root: int,
    limit: Limit | None,
    wanted_tv: float,
    fail_fast: bool,
    progress: Progress | None,
) -> Audit:
    started, subject = time.perf_counter(), execution.subject
    tests = sum(plan.tests for plan in plans)
    share = None if limit is None else limit.seconds / len(plans)
    promises: list[CaseResult] = []
    found: dict[str, CaseResult] = {}
    interrupted, out_of_time = False, []

    def begin(plan: Plan) -> CaseRun:
        # after one call has hung, the time-out of the next cases is shorter
        texts = (finding.text for one in (*promises, *found.values()) for finding in one.findings)
        patience = AGAIN if any("hung: " in text for text in texts) else 1.0
        return CaseRun(plan, root, BUDGET / tests, seconds=share, timeout=subject.timeout, patience=patience)

    try:
        if isinstance(subject, VerifierSubject):
            promises.append(promises_result(check_promises_at(subject, root)))
        if not (fail_fast and any(result.findings for result in promises)):
            runs = (
                run_cases(execution, plans, begin, progress)
                if fail_fast
                else run_in_rounds(execution, plans, begin, limit, wanted_tv, progress)
            )
            for run in runs:
                found[run.plan.case.name] = run.result()
                interrupted |= run.interrupted
                if run.left_out:
                    out_of_time.append(run.plan.case.name)
                if fail_fast and (interrupted or _first_failing(plans, found) is not None):
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
        provenance=Provenance.record(
            root, execution.threads, time.perf_counter() - started, getattr(execution.device, "name", None)
        ),
        planned=len(plans),
        limits=subject.limits,
        left_out=subject.left_out,
        out_of_time=tuple(out_of_time),
        wanted_tv=wanted_tv,
        origin=execution.origin,
        device=subject.device,
    )


def _first_failing(plans: Sequence[Plan], found: Mapping[str, CaseResult]) -> int | None:
    """The first case that fails, if all before it are known."""
    for i, plan in enumerate(plans):
        if plan.case.name not in found:
            return None
        if found[plan.case.name].findings:
            return i
    return None


def check_promises_at(subject: VerifierSubject, root: int) -> Partial:
    """Check the promises of a verifier; broken promises are the failures of the result."""
    findings = check_promises(subject.callee, case_key(root, PROMISES), subject.timeout)
    return Partial({}, failures=tuple(Failure(one.kind, one.text, one.details) for one in findings))


class CaseRun:
    """A case that is being counted: its next steps, its counts so far, and whether it has ended.

    There are eight looks, each test at false-alarm probability `alarm`; a case ends early only if a table
    rejects. If only the tables together do, it goes on to `SHOWN` times its steps, to show where. If it
    `extends`, it goes on to a ninth look if its evidence is near an alarm. With a limit in
    `seconds`, which may be raised, a few steps are counted first to measure the pace; the first ones may
    compile, and are not timed. A call hangs after `timeout` seconds times the `patience`, or later where the
    pace says so. It does not go on beyond `goal` steps, which may be raised too. `pace` are the
    seconds of a step, as they were last, and `left_out` says that others got its time."""

    def __init__(
        self,
        plan: Plan,
        root: int,
        alarm: float,
        *,
        seconds: float | None = None,
        timeout: float = TIMEOUT,
        patience: float = 1.0,
        extends: bool = True,
    ):
        self.plan, self.alarm, self.seconds = plan, alarm, seconds
        self.timeout, self.patience = timeout, patience
        self.total, self.evidence, self._alarmed = plan.nothing, 0.0, math.inf
        self.ended = self.interrupted = self.left_out = False
        self.pace, self.goal = 0.0, math.inf
        self._key = case_key(root, plan.case.name)
        ends = [end for end in interim_looks(plan.steps) if extends or end <= plan.steps]
        self._ends = [*(PACE_STEPS if seconds else ()), *ends]
        self._before_pace = 0.0

    def next(self) -> Steps | None:
        """The steps to be counted next; None at the end, for now if the seconds are over or the goal is
        reached."""
        done = self.total.steps
        planned = done < self.plan.steps or self.evidence >= NEAR
        end = next((end for end in self._ends if end > done), None)
        if self.ended or not planned or end is None:
            self.ended = True
            return None
        if self.seconds is not None and self.total.seconds >= self.seconds:
            return None
        until = int(min(end, self._affordable(end, done), self.goal))
        if until <= done:
            return None
        return self._steps(done, until)

    def ahead(self) -> Iterator[Steps]:
        """The steps up to the looks after the next one, if it has no limits and goes on."""
        if self.seconds is None and self.goal == math.inf:
            ends = [end for end in self._ends if self.total.steps < end <= self.plan.steps]
            for first, end in pairwise(ends):
                yield self._steps(first, end)

    def _steps(self, first: int, end: int) -> Steps:
        expected = self.pace * (end - first)
        patience = max(self.patience, SLOWER * expected / self.timeout)
        return Steps(self.plan.case.name, self._key, first, end - first, patience)

    def add(self, partial: Partial) -> None:
        """Add the counts of these steps, and test them."""
        self.total += partial
        done = self.total.steps
        if partial.steps:
            self.pace = partial.seconds / partial.steps
        if self.seconds is not None and done == PACE_STEPS[0]:
            self._before_pace = self.total.seconds
        if partial.failures:
            self.ended = True
        elif done not in PACE_STEPS:
            self.evidence, of_table = evidence(self.plan, self.total.counts, self.alarm)
            if self.evidence >= 1.0:
                self._alarmed = min(self._alarmed, done)
                self.ended = of_table >= 1.0 or done >= SHOWN * self._alarmed

    def fail(self, error: BrokenVerifier) -> None:
        """End the case as broken: its process has ended."""
        self.total = self.plan.nothing
        self.add(Partial({}, failures=(Failure("contract", str(error), error.details),)))

    @property
    def done(self) -> int:
        """The planned steps that were counted, or are not needed any more."""
        return self.plan.steps if self.ended else min(self.total.steps, self.plan.steps)

    @property
    def at_goal(self) -> bool:
        """Whether it has ended, or has the steps of its goal."""
        return self.ended or self.total.steps >= self.goal

    def result(self) -> CaseResult:
        """The result of the steps counted so far."""
        return judge_case(self.plan, self.total, self.alarm, self.interrupted)

    def _affordable(self, until: int, done: int) -> int:
        """`until`, or as many steps as fit into the seconds at the present pace, a multiple of 8."""
        first = PACE_STEPS[0]
        if self.seconds is None or done <= first:
            return until
        elapsed = self.total.seconds - self._before_pace
        return min(until, first + int((done - first) * self.seconds / elapsed) // 8 * 8)


def run_case(subject: Subject, run: CaseRun, progress: Progress | None = None) -> CaseRun:
    """Count a case to its end, or until Ctrl-C."""
    try:
        while (steps := run.next()) is not None:
            run.add(count_case(subject, steps, offset(progress, steps.first, run.plan.steps)))
    except KeyboardInterrupt:
        run.interrupted = True
    return run


def run_cases(
    execution: Execution, plans: Sequence[Plan], begin: Callable[[Plan], CaseRun], progress: Progress | None
) -> Iterator[CaseRun]:
    """Count each of `plans` to its end: one after the other, or side by side on workers, the first ones
    first, in the order of completion."""
    total, done = sum(plan.steps for plan in plans), 0
    if execution.elsewhere is None:
        for plan in plans:
            yield run_case(execution.subject, begin(plan), offset(progress, done, total))
            done += plan.steps
            if progress is not None:
                progress(done, total)
        return
    runs = [begin(plan) for plan in plans]
    for run, over in _side_by_side(execution, runs, runs, progress, in_turn=True):
        if over:
            yield run


def _side_by_side(
    execution: Execution,
    runs: Sequence[CaseRun],
    audited: Sequence[CaseRun],
    progress: Progress | None,
    *,
    in_turn: bool = False,
) -> Iterator[tuple[CaseRun, bool]]:
    """Count `runs`, some of those that are `audited`, on workers.

    Yield (run, whether it is at its end) whenever one has looked."""
    assert execution.elsewhere is not None
    total = sum(run.plan.steps for run in audited)
    for i, over in count_side_by_side(execution.elsewhere, execution.subject, runs, in_turn=in_turn):
        yield runs[i], over
        if progress is not None:
            progress(sum(run.done for run in audited), total)


def run_in_rounds(
    execution: Execution,
    plans: Sequence[Plan],
    begin: Callable[[Plan], CaseRun],
    limit: Limit | None,
    wanted_tv: float,
    progress: Progress | None,
) -> Iterator[CaseRun]:
    """Count each of `plans`, all up to one look before any goes on to the next; on workers side by side.

    With a time limit each case has the same time in a round, or some have all of it, see `_Rounds`. After one
    call has hung, later ones have less time; after `ALIKE` cases have broken the contract alike, others are
    not begun. Ctrl-C is raised after the cases begun were yielded, those that had not ended as
    interrupted."""
    rounds = _Rounds(execution, [begin(plan) for plan in plans], progress)
    interrupted = False
    try:
        if limit is None:
            rounds.to_the_end()
        else:
            rounds.in_time(limit, wanted_tv)
    except KeyboardInterrupt:
        interrupted = True
        for run in rounds.runs:
            run.interrupted = not run.ended and run.total.steps < run.plan.steps
    all_run = not interrupted and not rounds.broken_alike
    begun = (run for run in rounds.runs if run not in rounds.not_begun)
    yield from (run for run in begun if run.total.steps or run.total.failures or all_run)
    if interrupted:
        raise KeyboardInterrupt


class _Rounds:
    """The cases of an audit, and whose turn it is."""

    def __init__(self, execution: Execution, runs: Sequence[CaseRun], progress: Progress | None):
        self.execution, self.runs, self._progress = execution, runs, progress
        self._seen: Counter[tuple[str, str]] = Counter()
        #: Cases that one process would not have begun, since others had broken alike before.
        self.not_begun: set[CaseRun] = set()
        self._steps_needed: dict[CaseRun, int] = {}
        self._told, self._total = 0, sum(run.plan.steps for run in runs)

    @property
    def broken_alike(self) -> bool:
        """Whether so many cases have broken the contract alike that no other one is begun."""
        return max(self._seen.values(), default=0) >= ALIKE

    def to_the_end(self) -> None:
        """Count all steps of all cases."""
        if self._at_a_time:
            self._advance(self.runs)
            return
        for _ in LOOKS:
            for run in self.runs:
                self._go_on(run)

    def in_time(self, limit: Limit, wanted_tv: float) -> None:
        """Count until the time is over.

        Each case has a small share of it first, so that its pace is known. If nothing was found then, and
        equal shares would leave less than the wanted power in more than half of the cases, those that
        `choose` names have all of the time, and the others are left out. What is left in the end goes to the
        case nearest to an alarm, and once these have ended, to the others."""
        served = self.runs
        for part in ROUNDS:
            share = part * limit.seconds * self._processes / len(self.runs)
            for group in self._groups(self.runs):
                self._spend(group, limit, [share] * len(group))
            if part == ROUNDS[0] and self._too_slow(limit, wanted_tv):
                served = self._concentrate(limit, wanted_tv)
                break
        while (still := [run for run in served if not run.ended]) and self._left(limit) > 0:
            nearest = sorted(still, key=lambda run: -run.evidence)[: self._processes]
            for run in nearest:
                run.goal = math.inf
            if not self._spend_half(nearest, limit):
                break
        self._spend_rest(limit, wanted_tv)

    def _too_slow(self, limit: Limit, wanted_tv: float) -> bool:
        """Whether equal shares of the time are too short for a verdict, and none is known yet."""
        if any(run.evidence >= 1.0 for run in self.runs):
            return False
        asked = len(self.runs) + len(self.execution.subject.left_out)
        candidates = self._candidates(wanted_tv)
        ended = sum(run.ended and run.total.steps >= self._needed(run, wanted_tv) for run in self.runs)
        return too_slow(candidates, self._left(limit), asked, ended)

    def _needed(self, run: CaseRun, wanted_tv: float) -> int:
        if run not in self._steps_needed:
            self._steps_needed[run] = steps_needed(run.plan, wanted_tv, run.alarm)
        return self._steps_needed[run]

    def _concentrate(self, limit: Limit, wanted_tv: float) -> list[CaseRun]:
        """Count the cases that `choose` names up to the wanted power, while there is time; leave out the
        others."""
        by_name = {run.plan.case.name: run for run in self.runs}
        served: dict[str, Candidate] = {}
        while (left := self._left(limit)) > 0:
            waiting = [one for one in self._candidates(wanted_tv) if one.name not in served]
            kinds = [one.kind for one in served.values()]
            chosen = choose(waiting, kinds, left, self._left_of_a_case(limit), least=0 if served else 1)
            if self.execution.elsewhere is None:
                chosen = chosen[: self._processes]  # then the paces are known better
            if not chosen:
                break
            served |= {one.name: one for one in chosen}
            group = [by_name[one.name] for one in chosen]
            for run, one in zip(group, chosen, strict=True):
                run.goal = one.needed
            while (still := [run for run in group if not run.at_goal]) and self._left(limit) > 0:
                if not self._spend_half(still, limit):
                    break
        for run in self.runs:
            run.left_out = bool(served) and not run.ended and run.plan.case.name not in served
        return [by_name[name] for name in served]

    def _spend_rest(self, limit: Limit, wanted_tv: float) -> None:
        """Divide what is left among the cases left out.

        They may be faster than they looked, as where the first call of a shape is compiled."""
        groups = self._groups([run for run in self.runs if run.left_out])
        for i, group in enumerate(groups):
            more = self._left(limit) / sum(map(len, groups[i:]))
            self._spend(group, limit, [run.total.seconds + more for run in group])
            for run in group:
                run.left_out = not run.ended and run.total.steps < self._needed(run, wanted_tv)

    def _candidates(self, wanted_tv: float) -> list[Candidate]:
        """The cases that were begun and have not ended."""
        return [
            Candidate(
                run.plan.case.name,
                kind_of(run.plan),
                self._needed(run, wanted_tv),
                run.plan.steps,
                run.total.steps,
                run.pace,
            )
            for run in self.runs
            if run.total.steps and not run.ended
        ]

    @cached_property
    def _told_of_each(self) -> Told:
        return Told(self.runs, self._progress)

    @property
    def _at_a_time(self) -> bool:
        """Whether several cases are counted at a time."""
        return self.execution.elsewhere is not None or self.execution.children is not None

    @property
    def _processes(self) -> int:
        """The processes of the verifier that were started here."""
        return 1 if self.execution.children is None else len(self.execution.children.started)

    def _left(self, limit: Limit) -> float:
        """The seconds that are left to divide: of each process here, or of all workers together."""
        if self.execution.elsewhere is None:
            return limit.left() * self._processes
        return min(limit.left(), limit.seconds - sum(run.total.seconds for run in self.runs))

    def _left_of_a_case(self, limit: Limit) -> float:
        """The seconds that are left for one case: here one process at a time counts it, on workers several
        may."""
        return limit.left() if self.execution.elsewhere is None else self._left(limit)

    def _groups(self, runs: Sequence[CaseRun]) -> list[Sequence[CaseRun]]:
        """The cases that are counted at a time."""
        together = self._at_a_time and len(runs) > 0
        return [runs] if together else [[run] for run in runs]

    def _spend_half(self, runs: Sequence[CaseRun], limit: Limit) -> bool:
        """Count until `runs` have had half of the time left, so that it can be divided again at the pace that
        was measured; whether anything was counted."""
        more = max(self._left(limit) / 2, PIECE * limit.seconds) / len(runs)
        before = sum(run.total.steps for run in runs)
        for group in self._groups(runs):
            self._spend(group, limit, [run.total.seconds + more for run in group])
        return sum(run.total.steps for run in runs) > before

    def _spend(self, runs: Sequence[CaseRun], limit: Limit, seconds: Sequence[float]) -> None:
        """Count until `runs` have taken so many seconds in all, or the limit is reached."""
        left = self._left_of_a_case(limit)
        for run, most in zip(runs, seconds, strict=True):
            run.seconds = min(most, run.total.seconds + left)
        self._advance(runs, limit)

    def _advance(self, runs: Sequence[CaseRun], limit: Limit | None = None) -> None:
        """Count each of `runs` until it asks for no more steps."""
        if self.execution.elsewhere is not None:
            for looked, _ in _side_by_side(self.execution, runs, self.runs, self._progress):
                self._looked(looked)
        elif (children := self.execution.children) is not None:
            for looked in count_on_processes(self.execution.subject, children, runs, self._told_of_each):
                self._looked(looked)
                if limit is not None:
                    for run in runs:
                        assert run.seconds is not None
                        run.seconds = min(run.seconds, run.total.seconds + limit.left())
        else:
            for run in runs:
                while self._go_on(run):
                    pass

    def _go_on(self, run: CaseRun) -> bool:
        """Count a case up to its next look; whether it asked for steps."""
        if (steps := run.next()) is None:
            return False
        run.add(count_case(self.execution.subject, steps, offset(self._progress, self._told, self._total)))
        self._told = min(self._total, self._told + steps.steps)
        self._looked(run)
        return True

    def _looked(self, run: CaseRun) -> None:
        """Shorten the time-outs after a call has hung; begin no more cases after some have broken alike."""
        if any("hung: " in failure.text for failure in run.total.failures):
            for other in self.runs:
                other.patience = AGAIN
        self._seen.update(_broken(run))
        if self.broken_alike:
            for other in self.runs[self._begun_by_one :]:
                if not other.total.steps:
                    other.ended = True
                    self.not_begun.add(other)

    @property
    def _begun_by_one(self) -> int:
        """How many cases one process begins: several have begun others when some have broken alike."""
        seen: Counter[tuple[str, str]] = Counter()
        for i, run in enumerate(self.runs):
            if run.seconds is not None or not run.total.steps:
                seen.update(_broken(run))
            if max(seen.values(), default=0) >= ALIKE:
                return i + 1
        return len(self.runs)


def _broken(run: CaseRun) -> set[tuple[str, str]]:
    """How a case has broken the contract."""
    return {Finding(*failure).alike for failure in run.total.failures}


def diagnosis_of(execution: Execution, found: Audit, deadline: float) -> Diagnosis | None:
    """The diagnosis of what failed, None if there is none to make; unknown if it is not finished at
    `deadline`, of `time.monotonic`."""
    results = [case for case in found.cases if not case.broken and case.case != PROMISES]
    root, subject = found.provenance.root, execution.subject
    if found.interrupted:
        return None
    try:
        if found.edge_case and isinstance(subject, VerifierSubject):
            return diagnose_edge_case(subject, case_key(root, PROMISES))
        if not any(case.findings for case in results):
            return None
        return diagnose_failed(subject, results, found.level, root, deadline=deadline)
    except OutOfTime:
        return Diagnosis(reason="The diagnosis was stopped: it would have taken longer than the tests.")
    except (BrokenVerifier, NotADraftPath, KeyboardInterrupt):
        pass
    except Exception as error:  # an error of the diagnosis must not lose the verdict
        warnings.warn(f"the diagnosis failed ({error!r}); the verdict stands", RuntimeWarning, stacklevel=3)
    return None
