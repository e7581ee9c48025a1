"""A user's function in several child processes, one for each thread that asks."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

from specsim.auditing._verifier.arrays import Device
from specsim.auditing._verifier.child import Child
from specsim.auditing._verifier.contract import Declared
from specsim.auditing._verifier.origin import Origin
from specsim.auditing._verifier.requests import Asked
from specsim.core._types import Ints


class Children:
    """The function `reference` in up to `most` child processes, as a `Callee`; ValueError if it cannot be
    loaded.

    A thread asks the child that it uses, by default the first that was `started`, `since` a time of
    `time.monotonic`."""

    def __init__(self, reference: str, device: str | None, most: int):
        self._reference, self._wanted, self.most = reference, device, most
        first = Child(reference, device)
        self.declared: Declared = first.declared
        self.origin: Origin = first.origin
        self.device: Device = first.device
        self.started, self.since = [first], time.monotonic()
        self._own = threading.local()
        self._lock, self._asked_for, self._ended = threading.Lock(), False, False
        self._loading: list[Child] = []

    def start_others(self) -> None:
        """Start the other children in the background, if that was not asked for before.

        One that cannot be loaded, as where memory is short, or declares something else, is done without."""
        if not self._asked_for:
            self._asked_for = True
            for _ in range(self.most - 1):
                threading.Thread(target=self._start, daemon=True).start()

    def _start(self) -> None:
        with self._lock:
            if self._ended:
                return
            try:
                child = Child(self._reference, self._wanted, loaded=False)
            except OSError:
                return
            self._loading.append(child)
        try:
            child.load()
        except ValueError:
            return
        with self._lock:
            self._loading.remove(child)
            if not self._ended and child.declared == self.declared:
                self.started.append(child)
                return
        child.close()

    def use(self, child: Child) -> None:
        """The child that this thread asks from now on."""
        self._own.child = child

    def ask(self, asked: Asked) -> None:
        self._mine().ask(asked)

    def read(self, asked: Asked) -> Iterator[Ints]:
        return self._mine().read(asked)

    def kill(self) -> None:
        """End the children at once; threads that wait for an answer find them lost."""
        with self._lock:
            self._ended = True
            for child in (*self.started, *self._loading):
                child.kill()

    def close(self) -> None:
        self.kill()
        for child in self.started:
            child.close()

    def _mine(self) -> Child:
        return getattr(self._own, "child", self.started[0])
