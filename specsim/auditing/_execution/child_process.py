"""A child process in which somebody's verifier runs, so that it can hang or crash without harm.

The child runs whole cases, so that no array crosses the border; before a call it says that it is alive, every half
second at most. A child that falls silent inside a call, or dies, is replaced, and the next case goes on with a new one.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from specsim.auditing._verifier.contract import BrokenVerifier, Declared, NotADraftPath, declared
from specsim.simulation._counting import Progress

__all__ = ["AGAIN", "Child"]

#: Seconds between signs of life, and what is added to a time-out before a silent child is given up.
SIGN_EVERY, GRACE = 0.5, 30.0
#: Seconds for a child to import the module, and to hand in what it has after an interrupt.
START, FINISH = 300.0, 10.0
#: Part of the time-out that is waited for the calls of one that has hung before.
AGAIN = 0.1
#: Not multiprocessing's own start, which would run the caller's script again. The parent hears Ctrl-C, and decides.
CODE = (
    "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from specsim.auditing._execution.child_process import serve; serve(int(sys.argv[2]), sys.argv[3], float(sys.argv[4]))"
)


class Child:
    """Runs jobs on the verifier `reference`: `job(subject, *arguments, progress=...)`, a module's function.

    Raises ValueError if the verifier cannot be loaded.
    """

    def __init__(self, reference: str, timeout: float):
        self.reference = reference
        self.timeout = timeout
        self._patience = timeout + GRACE
        self._process: subprocess.Popen[bytes] | None = None
        self._end: Connection | None = None
        self._interrupted = False
        self.declared: Declared = self._start()

    def run(self, job: Callable[..., Any], *arguments: Any, progress: Progress | None = None) -> Any:
        """What `job` returns. Raises BrokenVerifier if the child hangs or dies.

        Ctrl-C asks it for what it has; whatever is to be run after that raises KeyboardInterrupt.
        """
        if self._interrupted:
            raise KeyboardInterrupt
        try:
            if self._process is None:
                self._restart()
            self._send((job, arguments))
            return self._await(progress, self._patience)
        except KeyboardInterrupt:
            self._interrupted = True
            if self._process is None:
                raise
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
        except BrokenVerifier as error:
            self.close()
            raise ValueError(f"verifier {self.reference!r}: the import {error}") from error
        except BaseException:
            self.close()
            raise
        return found

    def _restart(self) -> None:
        try:
            self._start()
        except ValueError as error:  # it could be imported before
            raise BrokenVerifier(str(error)) from error

    def _send(self, message: Any) -> None:
        assert self._end is not None
        try:
            self._end.send(message)
        except ConnectionError:  # it died after its last job
            raise BrokenVerifier(f"ended its process ({self._exit_code()})") from None

    def _await(self, progress: Progress | None, patience: float) -> Any:
        assert self._end is not None
        while True:
            try:
                if not self._end.poll(patience):
                    self.close()
                    self._patience = AGAIN * self.timeout + FINISH
                    raise BrokenVerifier(f"hung: nothing was heard for {patience:g} s")
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
    from specsim.auditing._checks.subjects import function_subject
    from specsim.auditing._verifier.loading import load

    last: dict[str, float] = {}

    def sign(kind: str, value: Any = None) -> None:
        if (now := time.monotonic()) - last.get(kind, 0.0) > SIGN_EVERY:
            last[kind] = now
            try:
                end.send((kind, value))
            except ConnectionError:  # the parent is gone
                os._exit(1)

    def heard(*arguments: Any, **keywords: Any) -> Any:
        sign("alive")
        return function(*arguments, **keywords)

    try:
        function = load(reference)
        subject = function_subject(heard, reference, declared(function), timeout)
    except (ValueError, TypeError) as error:
        end.send(("error", ValueError(str(error))))
        return
    end.send(("result", subject.declared))
    signal.signal(signal.SIGTERM, _interrupt)
    while True:
        try:
            job, arguments = end.recv()
            result = job(subject, *arguments, progress=lambda done, total: sign("progress", (done, total)))
            end.send(("result", result))
        except (EOFError, ConnectionError, KeyboardInterrupt):  # nobody waits for more
            return
        except (ValueError, TypeError, BrokenVerifier, NotADraftPath) as error:
            end.send(("error", error))


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt
