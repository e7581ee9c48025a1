"""Count the cases of a verifier on workers, side by side, in spans of consecutive calls.

A *span* is a run of consecutive calls, made by one verifier process; it takes about a second. The steps up to
the next look of a case are split where a run on one process begins with another generator: between batches of
two calls, between rounds of calls of changing shape, between texts. So the calls, their inputs and their
generators are those of a run on one process, however many workers there are, and so are the counts of a
verifier whose tokens depend on nothing else. What a verifier keeps from call to call it keeps within a span;
what its process did before may be any other span."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from specsim.auditing._checks.decoder import DecoderSource
from specsim.auditing._checks.subjects import DecoderSubject, Subject, VerifierSubject, function_subject
from specsim.auditing._checks.tables import Plan
from specsim.auditing._execution import Elsewhere, Steps, count_case
from specsim.auditing._verifier.calls import ShapesSource, VerifierSource
from specsim.auditing._verifier.child import Child
from specsim.core._kernels import sources_digest
from specsim.simulation._counting import Partial
from specsim.simulation._executors import FIRST_IN_FLIGHT, Spans, Task, check_same_code
from specsim.simulation._rows import pieces

#: Texts of a decoder that are not divided: first tokens of two texts that follow each other are compared.
TEXTS = 8


def count_side_by_side(
    elsewhere: Elsewhere, subject: Subject, runs: Sequence[CaseSteps], *, in_turn: bool = False
) -> Iterator[tuple[int, bool]]:
    """Count each of `runs` until it asks for no more steps. Yield (i, whether it is at its end) whenever the
    i-th one has looked.

    The case that is least advanced goes first, or `in_turn` the first of those that are not at their end;
    steps beyond the next look are counted ahead, and dropped if the case ends there, where no others wait.
    Raises ValueError if a worker cannot load the verifier, and as `Workers.results`."""
    cases = [_Case(run, *_split(subject, run)) for run in runs]
    under_way: dict[Task, tuple[_Case, Steps]] = {}
    code = sources_digest()

    def next_task() -> Task | None:
        able = [case for case in cases if case.due] or [case for case in cases if case.waits]
        if not able:
            return None
        case = able[0] if in_turn else min(able, key=lambda one: one.advanced)
        asked = case.next()
        task = Task(_count_span, (code, elsewhere.reference, elsewhere.timeout, asked))
        under_way[task] = case, asked
        return task

    for i, case in enumerate(cases):
        case.begin()
        if case.over:
            yield i, True
    room = max(FIRST_IN_FLIGHT, len(cases))
    for task, _, found in elsewhere.workers.results(next_task, room):
        case, asked = under_way.pop(task)
        if case.add(asked, found):
            yield cases.index(case), case.over


class CaseSteps(Protocol):
    """A case that asks for its steps up to its next look, and looks at their counts.

    `ahead` are the steps up to the looks after that, if it goes on."""

    plan: Plan
    total: Partial
    ended: bool

    def next(self) -> Steps | None: ...

    def ahead(self) -> Iterable[Steps]: ...

    def add(self, partial: Partial) -> None: ...


class _Segment:
    """The steps between two looks, and the counts of the spans that came back."""

    def __init__(self, steps: Steps):
        self.steps, self.end = steps, steps.first + steps.steps
        self.sum, self.back = Partial({}), 0
        self.failures: dict[int, Partial] = {}

    def add(self, asked: Steps, found: Partial) -> None:
        self.back += asked.steps
        if found.failures:
            self.failures[asked.first] = found
        else:
            self.sum += found

    def result(self) -> Partial:
        """The counts of all steps, or the failure of the earliest one, as on one process: spans are begun in
        their order, so that no earlier one is missing."""
        if not self.failures:
            return self.sum
        return replace(self.failures[min(self.failures)], seconds=self.sum.seconds)


class _Case:
    """A case on workers: the steps up to its next look and ahead of it in spans, and what came back."""

    def __init__(self, run: CaseSteps, spans: Spans, chunk: int | None):
        self.run, self._spans, self._chunk = run, spans, chunk
        self._segments: deque[_Segment] = deque()
        self._sent, self._failed = 0, False

    def begin(self) -> None:
        """Begin with the steps up to the next look, if there are any."""
        asked = self.run.next()
        if self._segments and asked == self._segments[0].steps:
            return
        self._segments.clear()
        self._spans.clear()
        if asked is not None:
            self._segments.extend(map(_Segment, (asked, *self.run.ahead())))
            self._sent = asked.first
        for segment in self._segments:
            first, steps = segment.steps.first, segment.steps.steps
            whole = [(first, steps)] if self._chunk is None else pieces(first, steps, self._chunk)
            self._spans.extend((start, start + n) for start, n in whole)

    @property
    def over(self) -> bool:
        """Whether it asks for no more steps."""
        return not self._segments

    @property
    def due(self) -> bool:
        """Whether a span before its next look is not under way."""
        return not self.over and not self._failed and self._sent < self._segments[0].end

    @property
    def waits(self) -> bool:
        """Whether any span is not under way."""
        return not self.over and not self._failed and self._sent < self._segments[-1].end

    @property
    def advanced(self) -> float:
        """The share of its planned steps that were counted or are under way."""
        return self._sent / self.run.plan.steps

    def next(self) -> Steps:
        """The next span."""
        span = self._spans.next()
        assert span is not None
        first, steps = span
        self._sent = first + steps
        return replace(self._segments[0].steps, first=first, steps=steps)

    def add(self, asked: Steps, found: Partial) -> bool:
        """Add the counts of a span; whether the case has looked."""
        here = [one for one in self._segments if one.steps.first <= asked.first < one.end]
        if not here:  # it was ahead of the look at which the case has ended
            return False
        here[0].add(asked, found)
        self._failed |= bool(found.failures)
        if not found.failures:
            self._spans.learn(asked.steps, found.seconds)
        looked = False
        while not self.over and self._complete(self._segments[0]):
            self.run.add(self._segments.popleft().result())
            self.begin()
            looked = True
        return looked

    def _complete(self, segment: _Segment) -> bool:
        """Whether all spans of a segment came back, or after a failure those that were begun."""
        end = min(segment.end, self._sent) if segment.failures else segment.end
        return segment.back == end - segment.steps.first


def _split(subject: Subject, run: CaseSteps) -> tuple[Spans, int | None]:
    """How a case is split, and the size of intervals that no span crosses, None if there are none.

    A run on one process begins a batch at the begin of each chunk. So spans are whole chunks, or, where a
    chunk has several batches, whole batches of one chunk."""
    source = subject.counter(run.plan.case.name)[0]
    if isinstance(source, DecoderSource):
        # calls of several texts change their size from call to call
        return Spans((), TEXTS if source.callee.declared.batch is None else source.chunk), None
    assert isinstance(source, VerifierSource)
    if isinstance(source, ShapesSource) or source.batch_steps >= source.chunk:
        return Spans((), source.chunk), None
    return Spans((), source.batch_steps), source.chunk


_own = threading.local()


@dataclass(frozen=True)
class _Loaded:
    """A verifier that a thread of a worker has loaded, with the subject whose sources are cached.

    Its process ends with the thread."""

    child: Child
    subject: VerifierSubject | DecoderSubject

    def __del__(self) -> None:
        self.child.close()


def _count_span(code: str, reference: str, timeout: float, asked: Steps) -> Partial:
    """Count a span in a worker, whose thread keeps the verifier's process for its next one."""
    check_same_code(code)
    loaded: _Loaded | None = getattr(_own, "loaded", None)
    if loaded is None or (loaded.child.reference, loaded.subject.timeout) != (reference, timeout):
        loaded = _own.loaded = None
        try:
            child = Child(reference)
        except ValueError as error:
            raise ValueError(f"a worker cannot load the verifier: {error}") from error
        loaded = _own.loaded = _Loaded(child, function_subject(child, reference, timeout))
    return count_case(loaded.subject, asked)
