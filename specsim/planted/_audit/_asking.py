"""Ask an engine for the texts that are missing, and keep what comes back."""

import time
from collections.abc import Iterator, Sequence

from specsim.planted._audit._store import TextStore
from specsim.planted._engines._requests import Completion, Engine, Failure, Request

#: Requests that an engine is given at once; between two such groups the time is looked at.
GROUP = 64
#: Failures in a row after which an engine is not asked further.
HOPELESS = 2 * GROUP


class Asking:
    """The requests to one engine in one run.

    They end at the `deadline`, a time of `time.perf_counter`, or when the engine does not answer; `ended`
    says so. A group is not cut off by the deadline: texts that came early would be other ones than all."""

    def __init__(self, engine: Engine, store: TextStore, deadline: float | None):
        self.engine, self.store, self.deadline = engine, store, deadline
        self.ended, self._failed = False, 0
        self._before = engine.counters()

    def answers(self, requests: Sequence[Request]) -> Iterator[Completion | Failure]:
        """What comes back for those of `requests` without all of their texts, as it is kept."""
        for group in self._groups(requests):
            if self.ended:
                return
            for answer in self.store.add(_asked_for(self.engine.complete(group), group)):
                self._failed = self._failed + 1 if isinstance(answer, Failure) else 0
                yield answer
                if self._failed >= HOPELESS:
                    self.ended = True
                    return
            self.ended = self.deadline is not None and time.perf_counter() > self.deadline

    def gained(self) -> dict[str, int] | None:
        """What the engine's own counters counted since the beginning; None without counters."""
        before, after = self._before, self.engine.counters()
        if before is None or after is None:
            return None
        return {name: after[name] - before[name] for name in after if name in before}

    def _groups(self, requests: Sequence[Request]) -> Iterator[list[Request]]:
        kept: dict[int, int] = {}
        for number, _ in self.store.completions:
            kept[number] = kept.get(number, 0) + 1
        missing = [one for one in requests if kept.get(one.number, 0) < one.n]
        for start in range(0, len(missing), GROUP):
            yield missing[start : start + GROUP]


def _asked_for(
    answers: Iterator[Completion | Failure], group: Sequence[Request]
) -> Iterator[Completion | Failure]:
    """The answers to `group`; others are not taken."""
    asked = {request.number: request for request in group}
    for answer in answers:
        request = asked.get(answer.number)
        if request is None or (isinstance(answer, Completion) and not 0 <= answer.index < request.n):
            continue
        yield answer
