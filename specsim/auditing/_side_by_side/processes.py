"""Count the cases of a verifier with several processes of it, side by side.

The steps of a case up to its next look are counted by one process, with the calls of a run on one process.
So a verifier that keeps something from call to call keeps it within these steps; what its process did before
may be steps of any other case."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from queue import Empty, SimpleQueue
from threading import Lock
from typing import Protocol, TypeVar

from specsim.auditing._checks.subjects import Subject
from specsim.auditing._execution import Steps, count_case
from specsim.auditing._side_by_side.spans import CaseSteps
from specsim.auditing._verifier.child import Child
from specsim.auditing._verifier.children import Children
from specsim.core._progress import Progress
from specsim.simulation._counting import Partial

#: Seconds that the first process counts alone: a short audit does not wait for the others to start.
ALONE = 4.0


class TimedSteps(CaseSteps, Protocol):
    """A case whose steps took `pace` seconds each, as they were last."""

    pace: float


Run = TypeVar("Run", bound=TimedSteps)


def count_on_processes(
    subject: Subject, children: Children, runs: Sequence[Run], progress: Progress | None = None
) -> Iterator[Run]:
    """Count each of `runs` until it asks for no more steps: all up to one look before any goes on to the
    next, those that take longest first. Yield each whenever it has looked.

    All processes but the first start after `ALONE` seconds. At Ctrl-C all are ended."""
    waiting, looks, counting = list(runs), Counter[Run](), 0
    free = list(children.started)
    alone_until = None if len(free) > 1 else time.monotonic() + ALONE
    told = _Told(runs, progress)
    events: SimpleQueue[tuple[Child, Run | None, Future[Partial] | None]] = SimpleQueue()

    def begin(child: Child, run: Run, steps: Steps) -> None:
        def count() -> Partial:
            children.use(child)
            return count_case(subject, steps, lambda done, _: told.tell(run, steps.first + done))

        found = pool.submit(copy_context().run, count)
        found.add_done_callback(lambda future: events.put((child, run, future)))

    with ThreadPoolExecutor(children.most) as pool:
        try:
            while True:
                while free and waiting:
                    run = min(waiting, key=lambda one: (looks[one], -one.pace * one.plan.steps))
                    waiting.remove(run)
                    if (steps := run.next()) is not None:
                        begin(free.pop(), run, steps)
                        counting += 1
                if not counting:
                    return
                try:
                    left = None if alone_until is None else max(0.0, alone_until - time.monotonic())
                    child, looked, future = events.get(timeout=left)
                except Empty:
                    alone_until = None
                    for _ in range(children.most - 1):
                        children.start(lambda started: events.put((started, None, None)))
                    continue
                free.append(child)
                if looked is not None and future is not None:
                    counting -= 1
                    looks[looked] += 1
                    looked.add(future.result())
                    waiting.append(looked)
                    yield looked
        except BaseException:
            children.kill()
            raise


class _Told:
    """What is told of the progress of several runs."""

    def __init__(self, runs: Sequence[CaseSteps], progress: Progress | None):
        self._progress, self._lock = progress, Lock()
        self._done = {id(run): 0 for run in runs}
        self._planned = {id(run): run.plan.steps for run in runs}

    def tell(self, run: CaseSteps, done: int) -> None:
        """So many steps of `run` are done."""
        if self._progress is None:
            return
        with self._lock:
            self._done[id(run)] = min(done, run.plan.steps)
            self._progress(sum(self._done.values()), sum(self._planned.values()))
