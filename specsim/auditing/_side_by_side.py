"""Several processes of a verifier, or workers, count spans of its cases side by side.

A process here counts all steps of a case up to its next look; a worker consecutive calls of about a second.
Steps are cut where a run on one process begins with another generator. So the calls, their inputs and their
generators are those of that run, as are the counts of a verifier whose tokens depend on nothing else."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from functools import partial
from typing import Any

from specsim.auditing._checks.decoder import DecoderSource
from specsim.auditing._checks.subjects import Span, Subject, open_subject, try_span
from specsim.auditing._verifier.calls import ShapesSource, VerifierSource
from specsim.auditing._verifier.child import Child, Children
from specsim.core._kernels import sources_digest
from specsim.simulation._counting import Partial
from specsim.simulation._executors import FIRST_IN_FLIGHT, Spans, Task, Workers, check_same_code

#: Seconds that the first process counts alone: a short audit does not wait for the others to start.
ALONE = 4.0
#: Texts of a decoder that are not divided: first tokens of two texts that follow each other are compared.
TEXTS = 8


#: The next span to count, or None if all spans are taken for now.
NextSpan = Callable[[], Span | None]
#: Called as tell(span, steps of it that are done, all its steps).
Tell = Callable[[Span, int, int], None]


class Processes:
    """Children of this process, each counts a span; others start after the first's `ALONE`."""

    def __init__(self, subject: Subject, children: Children):
        self._subject, self._children = subject, children

    @property
    def slots(self) -> int:
        """How many spans are counted at a time."""
        return len(self._children.started)

    def turn(self, case: Any) -> tuple[int, float]:
        """All cases up to one look before any begins the next, those that take longest first."""
        return case.looks, -case.run.pace * case.run.plan.steps

    def cut(self, case: str) -> None:
        """Spans end at looks."""

    def results(self, next_span: NextSpan, tell: Tell, _: int) -> Iterator[tuple[Span, Partial]]:
        """Yield each of the spans with its counts. At Ctrl-C all processes are ended."""
        children, free, known = self._children, list[Child](), 0
        counting: dict[Future[Partial], tuple[Child, Span]] = {}

        def count(child: Child, span: Span) -> Partial:
            children.use(child)
            return try_span(self._subject, span, partial(tell, span))

        with ThreadPoolExecutor(children.most) as pool:
            try:
                while True:
                    if time.monotonic() - children.since >= ALONE:
                        children.start_others()
                    new = children.started[known:]
                    known += len(new)
                    free += new
                    while free and (span := next_span()) is not None:
                        child = free.pop()
                        counting[pool.submit(copy_context().run, count, child, span)] = child, span
                    if not counting:
                        return
                    for future in wait(counting, return_when=FIRST_COMPLETED).done:
                        child, span = counting.pop(future)
                        free.append(child)
                        yield span, future.result()
            except BaseException:
                children.kill()
                raise


class OnWorkers:
    """The workers of an executor, which open the subject by its name."""

    slots = None  # they come and go

    def __init__(self, subject: Subject, workers: Workers):
        self._subject, self._workers = subject, workers

    def turn(self, case: Any) -> float:
        """The case that is least advanced goes first."""
        return case.advanced

    def cut(self, case: str) -> tuple[Spans, int | None]:
        """How a case is cut, and the size of intervals that no span crosses, or None: into whole chunks, or,
        where a chunk has several batches, into whole batches of one chunk."""
        source = self._subject.counter(case)[0]
        if isinstance(source, DecoderSource) and source.callee.declared.batch is None:
            return Spans((), TEXTS), None  # calls of several texts change their size from call to call
        batches = isinstance(source, VerifierSource) and not isinstance(source, ShapesSource)
        if batches and source.batch_steps < source.chunk:
            return Spans((), source.batch_steps), source.chunk
        return Spans((), source.chunk), None

    def results(self, next_span: NextSpan, _: Any, cases: int) -> Iterator[tuple[Span, Partial]]:
        """Yield each of the spans with its counts. Raises as `Workers.results`."""
        given = sources_digest(), self._subject.reference, self._subject.timeout

        def next_task() -> Task | None:
            return None if (span := next_span()) is None else Task(_count, (*given, span))

        for task, _, found in self._workers.results(next_task, max(FIRST_IN_FLIGHT, cases)):
            yield task.arguments[-1], found


_own = threading.local()


def _count(code: str, reference: str, timeout: float, span: Span) -> Partial:
    """Count a span in a worker, whose thread keeps the subject open for its next one, until it ends."""
    check_same_code(code)
    if getattr(_own, "asked", None) != (reference, timeout):
        _own.opened = _own.asked = None  # ends the process of the one before
        _own.opened = open_subject(reference, 1, timeout)
        try:
            _own.subject = _own.opened.__enter__()
        except ValueError as error:
            raise ValueError(f"a worker cannot load the verifier: {error}") from error
        _own.asked = reference, timeout
    return try_span(_own.subject, span)
