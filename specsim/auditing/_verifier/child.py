"""A user's function in a child process, which may hang, crash, or do anything else.

The parent draws, counts and judges; the child only maps arrays to tokens, and the parent checks the tokens. A
child that dies, sends nothing for too long, or sends anything but the next frame of its answer is killed with
the processes that it started, and replaced for the next question."""

import contextlib
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import numpy as np

from specsim import adapters
from specsim.adapters import _contract as contract
from specsim.adapters._contract import BrokenVerifier, Declared, LostVerifier, NotADraftPath, Verifier
from specsim.auditing._verifier import requests
from specsim.auditing._verifier.arrays import Device
from specsim.auditing._verifier.local import Local
from specsim.auditing._verifier.origin import Origin, import_places, origin_of
from specsim.auditing._verifier.requests import Kind
from specsim.core._processes import calling
from specsim.core._types import Ints

#: Seconds added to the time-out of a call before a silent child is killed; fewer after one was.
GRACE, GRACE_AGAIN = 30.0, 10.0
#: Seconds for the import of the module, and for the end of a child that closed its socket.
START, END = 300.0, 2.0
NO_ANSWER = "wrote to the socket of its process something that is no answer"
#: The most functions of which a child names the lines that did not run.
MOST_FUNCTIONS = 100
#: Seconds between looks at whether a child that sends nothing has ended.
LOOK_EVERY = 0.5
#: Seconds of silence after which the child sends the rows answered so far.
SEND_EVERY = 0.5
#: Unless the user says otherwise, torch and NumPy use one thread: the arrays of a call are so small that
#: waking other threads takes most of its time. glibc keeps up to 1 GB of freed memory for the arrays of the
#: next call; otherwise large ones are given back, and each call waits for new pages.
SETTINGS = {"OMP_NUM_THREADS": "1", "MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**30)}


class Child:
    """The function `reference` in a child process, as a `Callee`; ValueError if it cannot be loaded. The
    child says what is `declared`, and its `origin` and `device`. If not `loaded` here, `load` does that."""

    declared: Declared

    def __init__(self, reference: str, device: str | None = None, *, loaded: bool = True):
        self.reference = reference
        self.origin = Origin()
        self.device = Device("")
        self._wanted = device
        self._grace = GRACE
        self._process: Any = None
        self._end: Any = None
        self._gone = ""
        self._sent: requests.Arrays = {}
        self._unread, self._replaced = False, False
        self._begin()
        if loaded:
            self.load()

    def load(self) -> None:
        """Wait until the child has loaded the function. Raises ValueError if it cannot be loaded."""
        self.declared = self._loaded()

    def ask(self, asked: requests.Asked) -> None:
        if self._unread:  # what would still come is not the answer to this
            self.close()
        if self._process is None:
            self._restart()
        self._nonce, self._unread = os.urandom(16), True
        patience = asked.timeout + self._grace
        self._end.settimeout(patience)
        try:
            self._sent = requests.send_question(self._end, self._nonce, asked, self._sent)
        except TimeoutError:
            raise self._hung(patience) from None
        except ConnectionError:  # it died after its last answer
            raise self._lost(self._how_it_ended()) from None

    def read(self, asked: requests.Asked) -> Iterator[Ints]:
        left = asked.rows
        while left:
            most = max(requests.MOST_TEXT, left * asked.width * 8)
            kind, content = self._receive(self._nonce, asked.timeout + self._grace, most)
            if kind in (Kind.CONTRACT, Kind.PATH):
                self._unread = False
                text, _, details = content.decode(errors="replace").partition("\0")
                raise BrokenVerifier(text, details) if kind is Kind.CONTRACT else NotADraftPath(text)
            rows, rest = divmod(len(content), 8 * asked.width)
            if kind is not Kind.ROWS or rest or not 0 < rows <= left:
                raise self._lost(NO_ANSWER)
            left -= rows
            self._unread = left > 0
            yield np.frombuffer(content, dtype="<i8").reshape(rows, asked.width).astype(np.int64)

    def left(self) -> dict[int, set[int]]:
        """Empty if the child does not say it, or was replaced and with it what it had seen."""
        if self._process is None or self._end is None or self._unread or self._replaced:
            return {}
        nonce = os.urandom(16)
        with contextlib.suppress(LostVerifier, ValueError, TypeError, OSError):
            requests.ask_for_lines(self._end, nonce)
            kind, content = self._receive(nonce, GRACE, requests.MOST_TEXT)
            if kind is Kind.LINES:
                return {int(first): set(map(int, lines)) for first, lines in json.loads(content)}
        return {}

    def kill(self) -> None:
        """End the child at once, from any thread; one that waits for its answer finds it lost."""
        if (process := self._process) is not None:
            _kill(process)

    def close(self) -> None:
        """End the child, and the processes that it started."""
        if self._process is not None:
            _kill(self._process)
            self._process.wait()
            self._process = None
        if self._end is not None:
            self._end.close()
            self._end = None
        self._unread = False

    def _begin(self) -> None:
        self._end, other = socket.socketpair()
        self._sent, self._nonce = {}, os.urandom(16)
        given = [str(other.fileno()), self._nonce.hex(), self.reference, self._wanted or ""]
        try:
            # what the function prints goes to standard error: standard output has the result of the command
            self._process = subprocess.Popen(
                calling(serve, *given),
                pass_fds=[other.fileno()],
                env=SETTINGS | os.environ,
                stdin=subprocess.DEVNULL,
                stdout=2,
                start_new_session=True,
            )
        except BaseException:
            self.close()
            raise
        finally:
            other.close()

    def _loaded(self) -> Declared:
        try:
            return self._ready(*self._receive(self._nonce, START, requests.MOST_TEXT))
        except LostVerifier as error:
            self.close()
            raise ValueError(f"verifier {self.reference!r}: the import {error}") from error
        except BaseException:
            self.close()
            raise

    def _ready(self, kind: Kind, content: bytearray) -> Declared:
        if kind is Kind.REFUSED:
            raise ValueError(content.decode(errors="replace"))
        try:
            said = json.loads(content)
            self.origin, self.device = Origin.told(said["origin"]), Device.told(said["device"])
            fields = said["declared"]
            return Declared(**fields | {"dtypes": tuple(fields["dtypes"])})
        except (ValueError, TypeError, KeyError) as error:
            raise LostVerifier(f"sent no declarations ({error})") from error

    def _restart(self) -> None:
        self._replaced = True
        if not self._gone:
            try:
                self._begin()
                if self._loaded() != self.declared:
                    self._gone = "declares something else than before"
            except ValueError as error:  # it could be imported before
                self._gone = str(error)
        if self._gone:
            self.close()
            raise LostVerifier(self._gone)

    def _receive(self, nonce: bytes, patience: float, most: int) -> tuple[Kind, bytearray]:
        deadline = time.monotonic() + patience
        try:
            found, number, size = requests.FRAME.unpack(self._exactly(requests.FRAME.size, deadline))
            if found != nonce or number not in list(Kind) or size > most:
                raise self._lost(NO_ANSWER)
            return Kind(number), self._exactly(size, deadline)
        except TimeoutError:
            raise self._hung(patience) from None
        except (EOFError, ConnectionError):
            raise self._lost(self._how_it_ended()) from None

    def _exactly(self, size: int, deadline: float) -> bytearray:
        """Receive `size` bytes. Raises EOFError if the child has ended, TimeoutError after `deadline`."""
        content = bytearray(size)
        view = memoryview(content)
        while len(view):
            if (left := deadline - time.monotonic()) <= 0:
                raise TimeoutError
            self._end.settimeout(min(left, LOOK_EVERY))
            over = _ended(self._process)
            try:
                got = self._end.recv_into(view)
            except TimeoutError:
                if over:  # since before this wait
                    raise EOFError from None
                continue
            if not got:
                raise EOFError
            view = view[got:]
        return content

    def _hung(self, patience: float) -> LostVerifier:
        self._grace = GRACE_AGAIN
        return self._lost(f"hung: no answer for {patience:g} s")

    def _lost(self, how: str) -> LostVerifier:
        self.close()
        return LostVerifier(how)

    def _how_it_ended(self) -> str:
        until = time.monotonic() + END
        while not _ended(self._process):
            if time.monotonic() > until:
                return "closed the socket of its process"
            time.sleep(0.01)
        _kill(self._process)  # its session: the processes that it started
        code = self._process.wait()
        return f"ended its process ({signal.Signals(-code).name if code < 0 else f'exit code {code}'})"


def _ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether a child has ended; except without `os.waitid` it is not reaped: until its session is killed,
    its number must be its own."""
    if process.returncode is not None or not hasattr(os, "waitid"):
        return process.poll() is not None
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a child and its session, unless it has been reaped."""
    if process.returncode is None:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            process.kill()


def serve(handle: str, nonce: str, reference: str, device: str) -> None:
    """Answer questions to `reference` over the socket `handle` until the parent has ended."""
    with contextlib.suppress(EOFError, ConnectionError):
        _serve(socket.socket(fileno=int(handle)), bytes.fromhex(nonce), reference, device)


def _serve(end: socket.socket, own: bytes, reference: str, device: str) -> None:
    """Answer the questions from `end`, the first with the nonce `own`, until EOFError or ConnectionError."""

    def send(kind: Kind, content: bytes) -> None:
        requests.send_frame(end, own, kind, content)

    try:
        function = load(reference)
    except ValueError as error:
        return send(Kind.REFUSED, _text(error))
    try:
        local = Local(function, contract.on_device(contract.declared(function), device or None))
        about = local.device  # is the library installed, and has it the device?
    except (ValueError, TypeError) as error:
        return send(Kind.REFUSED, f"verifier {reference!r}: {error}".encode(errors="replace"))
    origin = origin_of(function)
    if adapters.name_of(reference) in adapters.ENGINES:  # of specsim's own adapters only the versions
        origin = Origin(libraries=origin.libraries)
    ready = {"declared": asdict(local.declared), "origin": asdict(origin), "device": asdict(about)}
    send(Kind.READY, json.dumps(ready).encode())
    kept: requests.Arrays = {}
    while True:
        own, asked, kept = requests.receive_question(end, kept)
        if asked is None:
            left = [(first, sorted(lines)) for first, lines in local.left().items()]
            send(Kind.LINES, json.dumps(left[:MOST_FUNCTIONS]).encode())
            continue
        try:
            for rows in _together(local.read(asked)):
                send(Kind.ROWS, rows.astype("<i8").tobytes())
        except NotADraftPath as error:
            send(Kind.PATH, _text(error))
        except BrokenVerifier as error:
            send(Kind.CONTRACT, _text(error, error.details))
        except KeyboardInterrupt:  # Ctrl-C is ignored here: the function raised it
            send(Kind.CONTRACT, b"raised KeyboardInterrupt")


def load(reference: str) -> Verifier:
    """Import package.module:function, or an adapter's function. Raises ValueError with what is missing."""
    if adapters.is_engine(reference):
        return adapters.get(reference)
    module_name, _, function_name = reference.partition(":")
    if not module_name or not function_name:
        raise ValueError(f"verifier {reference!r}: give a rule, an engine, or package.module:function")
    sys.path[:] = import_places()
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # a module may raise anything on import
        engines = [name for name in adapters.names() if name.partition(":")[0] == module_name]
        meant = f"; the names of that engine are {', '.join(engines)}" if engines else ""
        absent = isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(f"{error.name}.")
        if absent and not meant:
            own = ", ".join(one for one in sys.path if not one.startswith((sys.prefix, sys.base_prefix)))
            meant = f"; it is not in {own}; change to the folder of its file, or add that to PYTHONPATH"
        raise ValueError(
            f"verifier {reference!r}: cannot import {module_name} ({type(error).__name__}: {error}){meant}"
        ) from error
    if not callable(function := getattr(module, function_name, None)):
        raise ValueError(f"verifier {reference!r}: {module_name} has no function {function_name}")
    return function


def _together(answers: Iterator[Ints]) -> Iterator[Ints]:
    """The rows of `answers` that come within `SEND_EVERY` seconds together."""
    waiting, last = list[Ints](), time.monotonic()
    for rows in answers:
        waiting.append(rows)
        if (now := time.monotonic()) - last > SEND_EVERY:
            yield np.concatenate(waiting)
            waiting, last = [], now
    if waiting:
        yield np.concatenate(waiting)


def _text(error: Exception, details: str = "") -> bytes:
    """The message of `error`, then `details` after a zero byte."""
    text = str(error).replace("\0", "\\0")
    return (f"{text}\0{details}" if details else text).encode(errors="backslashreplace")[: requests.MOST_TEXT]


# A user's function in several child processes, one for each thread that asks.


class Children:
    """The function `reference` in up to `most` child processes, as a `Callee`; each thread asks one."""

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
        """Start the others in the background, once; one that cannot be loaded is done without."""
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

    def ask(self, asked: requests.Asked) -> None:
        self._mine().ask(asked)

    def read(self, asked: requests.Asked) -> Iterator[Ints]:
        return self._mine().read(asked)

    def left(self) -> dict[int, set[int]]:
        """Of a function that several children entered: the lines that none of them ran."""
        found: dict[int, set[int]] = {}
        for child in self.started:
            for first, lines in child.left().items():
                found[first] = found.get(first, lines) & lines
        return found

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
