"""Count the cases of a verifier on workers, side by side, in spans of consecutive calls.

A *span* is a run of consecutive calls, made by one verifier process; it takes about a second. The steps up to
the next look of a case are split where a run on one process begins with another generator: between batches of
two calls, between rounds of calls of changing shape, between texts. So the calls, their inputs and their
generators are those of a run on one process, however many workers there are, and so are the counts of a
verifier whose tokens depend on nothing else. What a verifier keeps from call to call it keeps within a span;
what its process did before may be any other span."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from specsim.auditing._checks.decoder import DecoderSource
from specsim.auditing._checks.subjects import DecoderSubject, Subject, VerifierSubject, function_subject
from specsim.auditing._checks.tables import Plan
from specsim.auditing._execution import Elsewhere, Steps, count_case
from specsim.auditing._verifier.calls import ShapesSource, VerifierSource
from specsim.auditing._verifier.child import Child
from specsim.core._kernels import sources_digest
from specsim.core._progress import Progress
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

    The case that is least advanced goes first, or `in_turn` the first of those that are not at their end. A
    broken contract ends the case as on one process: with the failure of the earliest step. Raises ValueError
    if a worker cannot load the verifier, and as `Workers.results`."""
    cases = [_Case(run, *_spans_of(subject, run)) for run in runs]
    under_way: dict[Task, tuple[_Case, Steps]] = {}
    code = sources_digest()

    def next_task() -> Task | None:
        able = [case for case in cases if case.waits]
        if not able:
            return None
        case = able[0] if in_turn else min(able, key=lambda one: one.advanced)
        asked = case.next()
        task = Task(_count_span, (code, elsewhere.reference, elsewhere.timeout, asked))
        under_way[task] = case, asked
        return task

    for i, case in enumerate(cases):
        if case.begin() is None:
            yield i, True
    room = max(FIRST_IN_FLIGHT, len(cases))
    for task, _, found in elsewhere.workers.results(next_task, room):
        case, asked = under_way.pop(task)
        if case.add(asked, found):
            yield cases.index(case), case.over


class CaseSteps(Protocol):
    """A case that asks for its steps up to its next look, and looks at their counts."""

    plan: Plan
    total: Partial
    ended: bool

    def next(self) -> Steps | None: ...

    def add(self, partial: Partial) -> None: ...


class _Case:
    """A case on workers: the steps up to its next look in spans, and the counts of those that came back."""

    def __init__(self, run: CaseSteps, spans: Spans, chunk: int | None):
        self.run, self._spans, self._chunk = run, spans, chunk
        self._steps: Steps | None = None
        self._sum, self._failures = Partial({}), dict[int, Partial]()
        self._asked = self._back = 0

    def begin(self) -> Steps | None:
        """Begin with the steps up to the next look; None at the end."""
        self._steps, self._sum, self._asked, self._back = self.run.next(), Partial({}), 0, 0
        if self._steps is not None:
            first, steps = self._steps.first, self._steps.steps
            whole = [(first, steps)] if self._chunk is None else pieces(first, steps, self._chunk)
            self._spans.extend((start, start + n) for start, n in whole)
        return self._steps

    @property
    def over(self) -> bool:
        """Whether it asks for no more steps."""
        return self._steps is None

    @property
    def waits(self) -> bool:
        """Whether it has a span to be counted."""
        return self._steps is not None and not self._failures and self._asked < self._steps.steps

    @property
    def advanced(self) -> float:
        """The share of its planned steps that were counted or are under way."""
        return (self.run.total.steps + self._asked) / self.run.plan.steps

    def next(self) -> Steps:
        """The next span."""
        assert self._steps is not None
        span = self._spans.next()
        assert span is not None
        self._asked += span[1]
        return replace(self._steps, first=span[0], steps=span[1])

    def add(self, asked: Steps, found: Partial) -> bool:
        """Add the counts of a span; whether they were the last ones before the look."""
        assert self._steps is not None
        self._back += asked.steps
        if found.failures:
            self._failures[asked.first] = found
        else:
            self._sum += found
            self._spans.learn(asked.steps, found.seconds)
        if self._back < (self._asked if self._failures else self._steps.steps):
            return False
        if self._failures:
            # spans are begun in their order, so that no earlier one is missing
            self._sum = replace(self._failures[min(self._failures)], seconds=self._sum.seconds)
        self.run.add(self._sum)
        self.begin()
        return True


def _spans_of(subject: Subject, run: CaseSteps) -> tuple[Spans, int | None]:
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
    """A verifier that a thread of a worker has loaded, with the subject whose latest source is cached."""

    child: Child
    subject: VerifierSubject | DecoderSubject


def _count_span(code: str, reference: str, timeout: float, asked: Steps) -> Partial:
    """Count a span in a worker, whose thread keeps the verifier's process for its next one."""
    check_same_code(code)
    loaded: _Loaded | None = getattr(_own, "loaded", None)
    if loaded is None or (loaded.child.reference, loaded.subject.timeout) != (reference, timeout):
        if loaded is not None:
            _own.loaded = None
            loaded.child.close()
        try:
            child = Child(reference)
        except ValueError as error:
            raise ValueError(f"a worker cannot load the verifier: {error}") from error
        loaded = _own.loaded = _Loaded(child, function_subject(child, reference, timeout))
    return count_case(loaded.subject, asked)
