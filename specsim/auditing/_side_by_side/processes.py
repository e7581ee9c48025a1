"""Count the cases of a verifier with several processes of it, side by side.

The steps of a case up to its next look are counted by one process, with the calls of a run on one process.
So a verifier that keeps something from call to call keeps it within these steps; what its process did before
may be steps of any other case."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from threading import Lock
from typing import Protocol, TypeVar

from specsim.auditing._checks.subjects import Subject
from specsim.auditing._execution import Steps, count_case
from specsim.auditing._side_by_side.spans import CaseSteps
from specsim.auditing._verifier.child import Child, Children
from specsim.core._progress import Progress
from specsim.simulation._counting import Partial

#: Seconds that the first process counts alone: a short audit does not wait for the others to start.
ALONE = 4.0


class TimedSteps(CaseSteps, Protocol):
    """A case whose steps took `pace` seconds each, as they were last; `done` of its planned ones are counted,
    or are not needed any more."""

    pace: float

    @property
    def done(self) -> int: ...


Run = TypeVar("Run", bound=TimedSteps)


def count_on_processes(
    subject: Subject, children: Children, runs: Sequence[Run], told: Told
) -> Iterator[Run]:
    """Count each of `runs` until it asks for no more steps: all up to one look before any goes on to the
    next, those that take longest first. Yield each whenever it has looked.

    All processes but the first start after `ALONE` seconds. At Ctrl-C all are ended."""
    waiting, looks = list(runs), Counter[Run]()
    free: list[Child] = []
    known = 0
    counting: dict[Future[Partial], tuple[Child, Run]] = {}

    def count(child: Child, run: Run, steps: Steps) -> Partial:
        children.use(child)
        return count_case(subject, steps, lambda done, _: told.tell(run, steps.first + done))

    with ThreadPoolExecutor(children.most) as pool:
        try:
            while True:
                if time.monotonic() - children.since >= ALONE:
                    children.start_others()
                new = children.started[known:]
                known += len(new)
                free += new
                while free and waiting:
                    run = min(waiting, key=lambda one: (looks[one], -one.pace * one.plan.steps))
                    waiting.remove(run)
                    if (steps := run.next()) is not None:
                        child = free.pop()
                        counting[pool.submit(copy_context().run, count, child, run, steps)] = child, run
                if not counting:
                    return
                for future in wait(counting, return_when=FIRST_COMPLETED).done:
                    child, run = counting.pop(future)
                    free.append(child)
                    run.add(future.result())
                    looks[run] += 1
                    waiting.append(run)
                    told.tell(run, run.done)
                    yield run
        except BaseException:
            children.kill()
            raise


class Told:
    """What is told of the progress of several cases."""

    def __init__(self, runs: Sequence[TimedSteps], progress: Progress | None):
        self._progress, self._lock = progress, Lock()
        self._done = {id(run): 0 for run in runs}
        self._total = sum(run.plan.steps for run in runs)

    def tell(self, run: TimedSteps, done: int) -> None:
        """So many steps of `run` are done."""
        if self._progress is None:
            return
        with self._lock:
            self._done[id(run)] = min(done, run.plan.steps)
            self._progress(sum(self._done.values()), self._total)
