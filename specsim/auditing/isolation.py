"""A child process in which somebody's verifier runs, so that it can hang or crash without harm.

The child runs whole cases, so that no array crosses the border. Beside the work a thread of it says every half second
that it is alive, as long as no call has taken too long. A child that falls silent, or dies, is replaced, and the next
case goes on with a new one.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from specsim.auditing.calls import waited
from specsim.auditing.contract import BrokenVerifier, Declared, NotADraftPath, declared
from specsim.engine import Progress

__all__ = ["Child"]

#: Seconds between signs of life, and how long a child may be silent, or a call go on after its time-out.
SIGN_EVERY, GRACE = 0.5, 10.0
#: Seconds for a child to import the module, and to hand in what it has after an interrupt.
START, FINISH = 300.0, 10.0
#: Not multiprocessing's own start, which would run the caller's script again.
CODE = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from specsim.auditing.isolation import serve; serve(int(sys.argv[2]), sys.argv[3], float(sys.argv[4]))"
)


class Child:
    """Runs jobs on the verifier `reference`: `job(subject, *arguments, progress=...)`, a module's function.

    Raises ValueError if the verifier cannot be loaded.
    """

    def __init__(self, reference: str, timeout: float):
        self.reference = reference
        self.timeout = timeout
        self._process: subprocess.Popen[bytes] | None = None
        self._end: Connection | None = None
        self.declared: Declared = self._start()

    def run(self, job: Callable[..., Any], *arguments: Any, progress: Progress | None = None) -> Any:
        """What `job` returns. Raises BrokenVerifier if the child hangs or dies; Ctrl-C asks it for what it has."""
        if self._process is None:
            self._start()
        self._send((job, arguments))
        try:
            return self._await(progress, GRACE)
        except KeyboardInterrupt:
            assert self._process is not None
            self._process.terminate()  # to the child, an interrupt
            try:
                return self._await(None, FINISH)
            except BrokenVerifier:
                raise KeyboardInterrupt from None

    def close(self) -> None:
        """End the child."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        if self._end is not None:
            self._end.close()
            self._end = None

    def _start(self) -> Declared:
        mine, other = socket.socketpair()
        self._end = Connection(mine.detach())
        given = [json.dumps(sys.path), str(other.fileno()), self.reference, str(self.timeout)]
        self._process = subprocess.Popen([sys.executable, "-c", CODE, *given], pass_fds=[other.fileno()])
        other.close()
        try:
            found: Declared = self._await(None, START)
        except (BrokenVerifier, ValueError) as error:
            self.close()
            if isinstance(error, ValueError):
                raise
            raise ValueError(f"verifier {self.reference!r}: the import {error}") from error
        return found

    def _send(self, message: Any) -> None:
        assert self._end is not None
        self._end.send(message)

    def _await(self, progress: Progress | None, patience: float) -> Any:
        assert self._end is not None
        while True:
            try:
                if not self._end.poll(patience):
                    self.close()
                    raise BrokenVerifier(
                        f"hung: its process did not answer, or a call took longer than {self.timeout:g} s"
                    )
                kind, value = self._end.recv()
            except (EOFError, ConnectionError):
                code = self._exit_code()
                raise BrokenVerifier(f"ended its process ({code})") from None
            if kind == "result":
                return value
            if kind == "error":
                raise value
            if progress is not None and kind == "progress":
                progress(*value)

    def _exit_code(self) -> str:
        assert self._process is not None
        code = self._process.wait()
        self._process = None
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def serve(handle: int, reference: str, timeout: float) -> None:
    """The child: load the verifier, then run job after job, over the socket `handle`."""
    end = Connection(handle)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears Ctrl-C, and decides
    from specsim.auditing.loading import load
    from specsim.auditing.subjects import function_subject

    try:
        function = load(reference)
        subject = function_subject(function, reference, declared(function), timeout)
    except (ValueError, TypeError) as error:
        end.send(("error", ValueError(str(error))))
        return
    end.send(("result", subject.declared))
    signal.signal(signal.SIGTERM, _interrupt)
    sending, last = threading.Lock(), 0.0

    def say(kind: str, value: Any) -> None:
        with sending:
            end.send((kind, value))

    def pulse() -> None:
        while waited() < timeout + GRACE:
            time.sleep(SIGN_EVERY)
            try:
                say("alive", None)
            except OSError:  # the parent is gone
                os._exit(0)

    def told(done: int, total: int) -> None:
        nonlocal last
        if (now := time.monotonic()) - last > SIGN_EVERY:
            last = now
            say("progress", (done, total))

    threading.Thread(target=pulse, daemon=True).start()
    while True:
        try:
            job, arguments = end.recv()
            say("result", job(subject, *arguments, progress=told))
        except (EOFError, BrokenPipeError):  # the parent is gone
            return
        except (ValueError, TypeError, BrokenVerifier, NotADraftPath) as error:
            say("error", error)


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt
