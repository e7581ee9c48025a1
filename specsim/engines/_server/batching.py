"""Calls of many threads, decoded together by one."""

import queue
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

from specsim.engines._planted.requests import Completion, Request
from specsim.engines._server.decoding import Decoder

#: Seconds in which calls are collected before the first step.
COLLECT = 0.003


@dataclass
class _Pending:
    """A call: its requests, their numbers in the decoder, what was found and what waits for it."""

    requests: Sequence[Request]
    names: list[int] = field(default_factory=list)
    found: list[Completion] = field(default_factory=list)
    answer: "Future[list[Completion]]" = field(default_factory=Future)

    @property
    def wanted(self) -> int:
        return sum(request.n for request in self.requests)


class Batching:
    """Decodes in a thread of its own; `complete` may be called by any number of threads."""

    def __init__(self, decoder: Decoder):
        self.decoder = decoder
        self._calls: queue.SimpleQueue[_Pending | None] = queue.SimpleQueue()
        self._open: dict[int, tuple[_Pending, int]] = {}
        self._numbers = 0
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def complete(self, requests: Sequence[Request]) -> list[Completion]:
        """The completions of `requests`, which are checked. Waits until all are finished."""
        pending = _Pending(requests)
        self._calls.put(pending)
        return pending.answer.result()

    def close(self) -> None:
        """End the thread after what it is decoding."""
        self._calls.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (pending := self._calls.get()) is not None:
            try:
                self._add(pending)
                time.sleep(COLLECT)
                self._decode()
            except Exception:
                self._decode_one_by_one()

    def _decode_one_by_one(self) -> None:
        """Decode each open call from its beginning, alone, so that a call fails only if it raises itself."""
        for pending in self._forget():
            try:
                self._add(pending)
                self._decode(more=False)
            except Exception as error:
                self._forget()
                pending.answer.set_exception(error)

    def _forget(self) -> list[_Pending]:
        """The open calls, as if they had not begun: the decoder's state was lost."""
        calls = list({id(pending): pending for pending, _ in self._open.values()}.values())
        for pending in calls:
            pending.names.clear()
            pending.found.clear()
        self._open.clear()
        self.decoder.clear()
        return calls

    def _decode(self, more: bool = True) -> None:
        """Decode until nothing is left, and begin with what comes meanwhile, if there may be `more`."""
        while self._open:
            while more and not self._calls.empty():
                if (pending := self._calls.get()) is None:
                    self._calls.put(None)  # the end is that of `_work`
                    break
                self._add(pending)
            for completion in self.decoder.step():
                pending, number = self._open[completion.number]
                pending.found.append(replace(completion, number=number))
                if len(pending.found) == pending.wanted:
                    pending.answer.set_result(pending.found)
                    for name in pending.names:
                        del self._open[name]

    def _add(self, pending: _Pending) -> None:
        for number, request in enumerate(pending.requests):
            self._open[self._numbers] = pending, number
            pending.names.append(self._numbers)
            self.decoder.add(replace(request, number=self._numbers))
            self._numbers += 1
