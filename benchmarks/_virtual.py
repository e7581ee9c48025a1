"""An executor of many workers in virtual time: what is sent to it takes the seconds that a function says."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from itertools import count
from types import SimpleNamespace
from typing import Any
from unittest import mock

from specsim.auditing._checks.subjects import Span
from specsim.simulation import _executors
from specsim.simulation._counting import Partial


class VirtualExecutor(Executor):
    """Runs spans of an audit on `workers` workers, the first one sent first; their counts are empty.

    `now` is the time, `busy` the seconds of all spans together, and `spans` their number."""

    def __init__(self, workers: int, seconds: Callable[[Span], float]):
        self._seconds = seconds
        self._free = [0.0] * workers
        self._ends: list[tuple[float, int, Future[Any], Any]] = []
        self._number = count()
        self.now = self.busy = 0.0
        self.spans = 0

    def submit(self, function: Any, /, *arguments: Any, **_: Any) -> Future[Any]:
        asked: Span = arguments[-1]
        seconds, future = self._seconds(asked), Future[Any]()
        end = max(self.now, heapq.heappop(self._free)) + seconds
        heapq.heappush(self._free, end)
        found = Partial({}, ((asked.first, asked.first + asked.steps),), seconds=seconds)
        heapq.heappush(self._ends, (end, next(self._number), future, (seconds, found)))
        self.busy += seconds
        self.spans += 1
        return future

    def wait(self, *_: Any, **__: Any) -> Any:
        """Go on to the end of the next span; in place of `concurrent.futures.wait`."""
        self.now, _, future, result = heapq.heappop(self._ends)
        future.set_result(result)
        return SimpleNamespace(done={future})

    @contextmanager
    def in_its_time(self) -> Iterator[None]:
        """The time of the module that sends the work is this one's."""
        with (
            mock.patch.object(_executors, "wait", self.wait),
            mock.patch.object(_executors, "time", SimpleNamespace(monotonic=lambda: self.now)),
        ):
            yield
