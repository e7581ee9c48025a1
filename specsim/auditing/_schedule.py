"""Which case of an audit is counted next, where, and for how long.

A case asks for its steps up to its next look. They are cut into *spans*, (case, first step, steps). This
process counts spans one after the other; several processes, or workers, count them side by side
(`_side_by_side.py`). A time limit is divided among the cases: each asks for no more steps after its share."""

import math
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import pairwise
from threading import Lock
from typing import Any

from specsim.adapters._contract import BrokenVerifier
from specsim.auditing._cases.battery import case_key
from specsim.auditing._checks.concentration import Candidate, choose, kind_of, steps_needed, too_slow
from specsim.auditing._checks.findings import evidence, judge_case
from specsim.auditing._checks.subjects import Span, Subject, try_span
from specsim.auditing._checks.tables import Plan, interim_looks
from specsim.auditing._results.audit import CaseResult, Finding
from specsim.auditing._side_by_side import NextSpan, OnWorkers, Processes, Tell
from specsim.auditing._verifier.calls import TIMEOUT
from specsim.core._progress import Progress, silent
from specsim.simulation._counting import Failure, Partial
from specsim.simulation._executors import Spans
from specsim.simulation._rows import pieces

#: How many times the steps that raised an alarm are drawn to find the table that deviates.
SHOWN = 4
#: Shares of a time limit that all cases have had, each as much as the others, at the end of each round. What
#: cases leave goes to the one whose evidence is nearest to an alarm, in pieces of at least that share.
ROUNDS, PIECE = (0.1, 0.25, 0.5, 1.0), 0.05
#: Cases that break the contract alike, after which the others are not begun.
ALIKE = 3
#: Share of the time-out that the calls of later cases get after one has hung.
AGAIN = 0.1
#: More steps than a case has: its spans end at its looks.
WHOLE = 2**62
#: Ends of the first pieces of a case with limited time: the first compiles, the second measures the pace.
PACE_STEPS = (8, 16)
#: Evidence, as a share of what rejects, from which on a case goes on beyond its planned steps.
NEAR = 0.5
#: A call hangs only if it takes this many times as long as all steps that are asked for would at the measured
#: pace: the calls of a slow verifier grow like those of others.
SLOWER = 4.0


class CaseRun:
    """A case that is being counted: its next steps, its counts so far, and whether it has ended.

    It has eight looks, and if it `extends` a ninth, where its `evidence` is near an alarm, which is 1; each
    test has false-alarm probability `alarm`. It ends early if a table rejects; if only the tables together
    do, it has up to `SHOWN` times its steps, to show where. It ends for now after its `seconds` or at its
    `goal`, and is `left_out` if others got its time. A call hangs after `timeout` seconds times the
    `patience`, or later where the `pace` says so."""

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
        self.total, self.evidence = plan.nothing, 0.0
        self.ended = self.interrupted = self.left_out = False
        self.pace, self.goal = 0.0, math.inf
        self._key = case_key(root, plan.case.name)
        ends = [end for end in interim_looks(plan.steps) if extends or end <= plan.steps]
        self._ends = [*(PACE_STEPS if seconds else ()), *ends]
        self._before_pace, self._alarmed = 0.0, math.inf

    def next(self) -> Span | None:
        """The steps to be counted next; None at the end, or while it has no seconds or no goal left."""
        done = self.total.steps
        planned = done < self.plan.steps or self.evidence >= NEAR
        end = next((end for end in self._ends if end > done), None)
        if self.ended or not planned or end is None:
            self.ended = True
            return None
        if self.seconds is not None and self.total.seconds >= self.seconds:
            return None
        until = int(min(end, self._affordable(end, done), self.goal))
        return self._steps(done, until) if until > done else None

    def ahead(self) -> Iterator[Span]:
        """The steps up to the looks after the next one, if it has no limits and continues."""
        if self.seconds is None and self.goal == math.inf:
            ends = [end for end in self._ends if self.total.steps < end <= self.plan.steps]
            yield from (self._steps(first, end) for first, end in pairwise(ends))

    def _steps(self, first: int, end: int) -> Span:
        expected = self.pace * (end - first)
        patience = max(self.patience, SLOWER * expected / self.timeout)
        return Span(self.plan.case.name, self._key, first, end - first, patience)

    def add(self, partial: Partial) -> None:
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

    def result(self) -> CaseResult:
        return judge_case(self.plan, self.total, self.alarm, self.interrupted)

    @property
    def done(self) -> int:
        """The planned steps that were counted, or are not needed any more."""
        return self.plan.steps if self.ended else min(self.total.steps, self.plan.steps)

    def _affordable(self, until: int, done: int) -> int:
        """`until`, or as many steps as fit into the seconds at the present pace, a multiple of 8."""
        first = PACE_STEPS[0]
        if self.seconds is None or done <= first:
            return until
        elapsed = self.total.seconds - self._before_pace
        return min(until, first + int((done - first) * self.seconds / elapsed) // 8 * 8)


def run_case(subject: Subject, run: CaseRun) -> CaseRun:
    """Count a case to its end, or until Ctrl-C."""
    try:
        while (span := run.next()) is not None:
            run.add(try_span(subject, span))
    except KeyboardInterrupt:
        run.interrupted = True
    return run


class Here:
    """This process, which counts one span at a time."""

    slots = 1

    def __init__(self, subject: Subject):
        self._subject = subject

    def turn(self, case: Any) -> int:
        """All cases up to one look before any begins the next; with a time limit one after the other."""
        return case.looks if case.run.seconds is None else 0

    def cut(self, case: str) -> None:
        """Spans end at looks."""

    def results(self, next_span: NextSpan, tell: Tell, _: int) -> Iterator[tuple[Span, Partial]]:
        """Yield each of the spans with its counts."""
        while (span := next_span()) is not None:
            yield span, try_span(self._subject, span, partial(tell, span))


class Schedule:
    """The cases of an audit, and whose turn it is; with `alone` one process of the verifier counts them."""

    #: The steps of a case that make the wanted total variation detectable.
    _needed: Callable[[CaseRun], int]

    def __init__(
        self, subject: Subject, runs: Sequence[CaseRun], progress: Progress = silent, *, alone: bool = False
    ):
        self.runs = runs
        self._left_out = len(subject.left_out)
        self.place: Here | Processes | OnWorkers = Here(subject)
        if subject.workers is not None:
            self.place = OnWorkers(subject, subject.workers)
        elif subject.children is not None and not alone:
            self.place = Processes(subject, subject.children)
        #: Cases that one process would not have begun, since others had broken alike before.
        self._not_begun: set[CaseRun] = set()
        self._broken: Counter[tuple[str, str]] = Counter()
        self._progress, self._lock = progress, Lock()
        self._told = {run.plan.case.name: 0 for run in runs}
        self._steps = {run.plan.case.name: run.plan.steps for run in runs}
        self._end, self._seconds = math.inf, math.inf
        self._whole = False

    def in_turn(self) -> Iterator[CaseRun]:
        """Count each case to its end, the first ones first; yield each at its end."""
        for run in self._count(self.runs, in_turn=True):
            if run.next() is None:
                yield run

    def to_the_end(self) -> None:
        """Count all steps of all cases; after `ALIKE` have broken the contract alike, no others."""
        self._advance(self.runs)
        self._whole = not self._broken_alike

    def in_time(self, end: float, seconds: float, wanted_tv: float) -> None:
        """Count until the time of `seconds` is over, at `end` by `time.perf_counter`.

        Each case has a small share of it first, so that its pace is known. If equal shares would then be
        `too_slow`, the cases that `choose` names have all of the time. What is left in the end goes to the
        case nearest to an alarm, and once these have ended, to the others."""
        self._end, self._seconds, chosen = end, seconds, self.runs
        self._needed = cache(lambda run: steps_needed(run.plan, wanted_tv, run.alarm))
        for part in ROUNDS:
            share = part * seconds * (self.place.slots or 1) / len(self.runs)
            for run in self.runs:
                run.seconds = share
            self._advance(self.runs)
            if part == ROUNDS[0] and self._too_slow():
                chosen = self._concentrate()
                break
        for run in chosen:
            run.goal = math.inf
        self._finish(chosen, self.place.slots or 1)
        left_out = [run for run in self.runs if run.left_out]
        self._finish(left_out)  # they may be faster than they looked: the first call of a shape may compile
        for run in left_out:
            run.left_out = not run.ended and run.total.steps < self._needed(run)
        self._whole = not self._broken_alike

    @property
    def begun(self) -> list[CaseRun]:
        """The cases that were counted, or all if nothing has ended the audit before."""
        begun = (run for run in self.runs if run not in self._not_begun)
        return [run for run in begun if self._whole or run.total.steps or run.total.failures]

    def hung(self) -> None:
        """Shorten the time-outs after a call has hung."""
        for run in self.runs:
            run.patience = AGAIN

    # The time of a case.

    def _too_slow(self) -> bool:
        """Whether equal shares of the time are too short for a verdict, and none is known yet."""
        if any(run.evidence >= 1.0 for run in self.runs):
            return False
        ended = sum(run.ended and run.total.steps >= self._needed(run) for run in self.runs)
        return too_slow(self._candidates(), self._left(), len(self.runs) + self._left_out, ended)

    def _concentrate(self) -> Sequence[CaseRun]:
        """Count the cases that `choose` names up to the wanted power, and leave out the others."""
        by_name = {run.plan.case.name: run for run in self.runs}
        served: dict[str, Candidate] = {}
        while (left := self._left()) > 0:
            waiting = [one for one in self._candidates() if one.name not in served]
            kinds = [one.kind for one in served.values()]
            chosen = choose(waiting, kinds, left, self._left_of_one(), least=0 if served else 1)
            if not (chosen := chosen[: self.place.slots]):  # for the next ones the paces are known better
                break
            served |= {one.name: one for one in chosen}
            for one in chosen:
                by_name[one.name].goal = one.needed
            self._finish([by_name[one.name] for one in chosen])
        for name, run in by_name.items():
            run.left_out = bool(served) and not run.ended and name not in served
        return [by_name[name] for name in served]

    def _candidates(self) -> list[Candidate]:
        """The cases that were begun and have not ended."""
        begun = [run for run in self.runs if run.total.steps and not run.ended]
        asked = [(run.plan.case.name, kind_of(run.plan), self._needed(run), run.plan.steps) for run in begun]
        return [Candidate(*one, run.total.steps, run.pace) for one, run in zip(asked, begun, strict=True)]

    def _left(self) -> float:
        """The seconds that are left to divide: of each process here, or of all workers together."""
        left = self._end - time.perf_counter()
        if self.place.slots is None:
            return min(left, self._seconds - sum(run.total.seconds for run in self.runs))
        return left * self.place.slots

    def _left_of_one(self) -> float:
        """The seconds that are left for one case: one process at a time counts it, or several workers."""
        return self._left() if self.place.slots is None else self._end - time.perf_counter()

    def _finish(self, runs: Sequence[CaseRun], most: int | None = None) -> None:
        """Count `runs` to their goals, the `most` nearest to an alarm first, in half of the time left."""
        while (left := self._left()) > 0:
            still = [run for run in runs if not run.ended and run.total.steps < run.goal]
            if not (nearest := sorted(still, key=lambda run: -run.evidence)[:most]):
                break
            more = max(left / 2, PIECE * self._seconds) / len(nearest)
            before = sum(run.total.steps for run in nearest)
            for run in nearest:
                run.seconds = run.total.seconds + more
            self._advance(nearest)
            if sum(run.total.steps for run in nearest) == before:
                break

    # The turn of a case.

    def _advance(self, runs: Sequence[CaseRun]) -> None:
        """Count each of `runs` until it asks for no more steps."""
        self._keep_to_the_limit(runs)
        for looked in self._count(runs):
            self._keep_to_the_limit(runs)
            self._broken.update(_broken(looked))
            if self._broken_alike:
                for other in self.runs[self._begun_by_one :]:
                    if not other.total.steps:
                        other.ended = True
                        self._not_begun.add(other)

    def _keep_to_the_limit(self, runs: Sequence[CaseRun]) -> None:
        left = self._left_of_one()
        for run in runs:
            if run.seconds is not None:
                run.seconds = min(run.seconds, run.total.seconds + left)

    @property
    def _broken_alike(self) -> bool:
        return max(self._broken.values(), default=0) >= ALIKE

    @property
    def _begun_by_one(self) -> int:
        """How many cases one process would begin: several have begun others when some have broken alike."""
        seen: Counter[tuple[str, str]] = Counter()
        for i, run in enumerate(self.runs):
            if run.seconds is not None or not run.total.steps:
                seen.update(_broken(run))
            if max(seen.values(), default=0) >= ALIKE:
                return i + 1
        return len(self.runs)

    def _count(self, runs: Sequence[CaseRun], *, in_turn: bool = False) -> Iterator[CaseRun]:
        """Count each of `runs` until it asks for no more steps; yield each whenever it has looked."""
        cases = {run.plan.case.name: _Case(run, self.place.cut(run.plan.case.name)) for run in runs}

        def next_span() -> Span | None:
            some = cases.values()
            while able := [case for case in some if case.due()] or [case for case in some if case.due(-1)]:
                case = able[0] if in_turn else min(able, key=self.place.turn)
                if (span := case.next()) is not None:
                    return span
            return None

        for span, found in self.place.results(next_span, self._tell, len(cases)):
            case = cases[span.case]
            if not case.add(span, found):
                continue
            if any("hung: " in failure.text for failure in case.run.total.failures):
                self.hung()
            yield case.run
            self._tell(span, case.run.done - span.first)

    def _tell(self, span: Span, done: int, _: int = 0) -> None:
        """Some steps of a span are done, and all before it."""
        with self._lock:
            self._told[span.case] = min(span.first + done, self._steps[span.case])
            self._progress(sum(self._told.values()), sum(self._steps.values()))


def _broken(run: CaseRun) -> set[tuple[str, str]]:
    return {Finding(*failure).alike for failure in run.total.failures}


class _Segment:
    """The steps between two looks, and the counts of the spans that came back."""

    def __init__(self, steps: Span):
        self.steps, self.end = steps, steps.first + steps.steps
        self.sum, self.back = Partial({}), 0
        self.failures: dict[int, Partial] = {}

    def add(self, span: Span, found: Partial) -> None:
        self.back += span.steps
        if found.failures:
            self.failures[span.first] = found
        else:
            self.sum += found

    def result(self) -> Partial:
        """The counts of all steps, or the failure of the earliest: spans begin in their order."""
        if not self.failures:
            return self.sum
        failed = self.failures[min(self.failures)]
        return replace(failed, seconds=failed.seconds + self.sum.seconds)


class _Case:
    """A case in spans, up to its next look and, if it is `cut`, ahead of it: dropped if it ends there."""

    def __init__(self, run: CaseRun, cut: tuple[Spans, int | None] | None):
        self.run, self._cut = run, cut is not None
        self._spans, self._chunk = cut or (Spans((), WHOLE), None)
        self._segments: deque[_Segment] = deque()
        self._sent, self._failed, self._over = run.total.steps, False, False
        self.looks = 0

    def due(self, segment: int = 0) -> bool:
        """Whether steps before its next look, or of the segment of that number, are not under way."""
        if self._over or self._failed or self.run.ended:
            return False
        return not self._segments or self._sent < self._segments[segment].end

    @property
    def advanced(self) -> float:
        """The share of its planned steps that were counted or are under way."""
        return self._sent / self.run.plan.steps

    def next(self) -> Span | None:
        """The next span, None if it asks for no more steps."""
        if not self._segments:
            self._begin()
        if (span := self._spans.next()) is None:
            self._over = True
            return None
        first, steps = span
        self._sent = first + steps
        return replace(self._segments[0].steps, first=first, steps=steps)

    def _begin(self) -> None:
        """Begin with the steps up to the next look, if there are any."""
        self._spans.clear()
        if (asked := self.run.next()) is None:
            return
        self._segments.extend(map(_Segment, (asked, *(self.run.ahead() if self._cut else ()))))
        self._sent = asked.first
        for segment in self._segments:
            first, steps = segment.steps.first, segment.steps.steps
            for start, n in [(first, steps)] if self._chunk is None else pieces(first, steps, self._chunk):
                self._spans.extend([(start, start + n)])

    def add(self, span: Span, found: Partial) -> bool:
        """Add the counts of a span; whether the case has looked."""
        here = [one for one in self._segments if one.steps.first <= span.first < one.end]
        if not here:  # it was ahead of the look at which the case has ended
            return False
        here[0].add(span, found)
        self._failed |= bool(found.failures)
        if not found.failures:
            self._spans.learn(span.steps, found.seconds)
        looks = self.looks
        while self._segments and self._complete(self._segments[0]):
            self.run.add(self._segments.popleft().result())
            self.looks += 1
            if self._segments and self.run.next() != self._segments[0].steps:
                self._segments.clear()
        return self.looks > looks

    def _complete(self, segment: _Segment) -> bool:
        """Whether all spans of a segment came back, or after a failure those that were begun."""
        end = min(segment.end, self._sent) if segment.failures else segment.end
        return segment.back == end - segment.steps.first
