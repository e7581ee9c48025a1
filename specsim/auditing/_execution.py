"""Run a verifier in this process, in a child process, or on workers that have child processes.

A function given by name may hang or crash, so it runs in a child process. A job is one message to the child,
and its result one message back. Before calls of the function, at most every half second, the child sends a
sign of life. A child that dies, or sends nothing for too long, is replaced for the next job."""

import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from specsim import rules
from specsim.auditing import adapters
from specsim.auditing._checks.subjects import RuleSubject, Subject, function_subject
from specsim.auditing._verifier.contract import BrokenVerifier, Declared, NotADraftPath, Verifier, declared
from specsim.core._kernels import sources_digest
from specsim.rules import Rule
from specsim.simulation._counting import Progress
from specsim.simulation._executors import Task, Workers, check_same_code

#: Seconds between signs of life, and seconds added to the time-out before a silent child is killed.
SIGN_EVERY, GRACE = 0.5, 30.0
#: Seconds for the import of the module, and seconds added to the shorter time-out after a child has hung.
START, FINISH = 300.0, 10.0
#: Share of the time-out that later calls get after one has hung.
AGAIN = 0.1
#: Not multiprocessing's start, which would run the caller's script again. Only the parent handles Ctrl-C.
CODE = (
    "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); "
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from specsim.auditing._execution import serve; serve(int(sys.argv[2]), sys.argv[3], float(sys.argv[4]))"
)

Job = Callable[..., Any]
RunEach = Callable[..., Iterator[tuple[int, Any]]]


@dataclass(frozen=True)
class Execution:
    """A subject, and how jobs run on it: `run(job, *arguments, …)` is job(subject, *arguments, …).

    `subject` plans the cases; in a child process another subject, with the function, runs them.
    `run_each(work, arguments)` yields (i, work(execution, arguments[i])) in the order of completion, with a
    separate execution on each worker; it is None where jobs run one after the other."""

    subject: Subject
    run: Job
    run_each: RunEach | None = None


@contextmanager
def open_execution(
    verifier: str | Rule | Verifier, threads: int, timeout: float, workers: Workers | None = None
) -> Iterator[Execution]:
    """Open the execution of `verifier`: a rule or its name, package.module:function, or a function.

    `workers` count a rule's steps, or run whole cases of a verifier given by name. Raises ValueError for an
    unknown name and for a function together with workers, TypeError for anything else."""
    if isinstance(verifier, str) and not is_rule(verifier):
        with closing(Child(verifier, timeout)) as child:
            run_each = None if workers is None else partial(_run_each, workers, verifier, timeout)
            yield Execution(planned_subject(verifier, child.declared), child.run, run_each)
    elif isinstance(verifier, str | Rule):
        yield here(RuleSubject(rules.get(verifier), threads, workers))
    elif not callable(verifier):
        raise TypeError(f"verifier: expected a rule's name or a function, got {type(verifier).__name__}")
    elif workers is not None:
        raise ValueError(
            "executor: a function cannot be sent to workers; give its name, package.module:function"
        )
    else:
        name = f"{getattr(verifier, '__module__', '?')}:{getattr(verifier, '__qualname__', repr(verifier))}"
        yield here(function_subject(verifier, name, declared(verifier), timeout))


def here(subject: Any) -> Execution:
    """The execution of `subject`, or of any object with its `counter`, in this process."""

    def run(job: Job, *arguments: Any, progress: Progress | None = None) -> Any:
        return job(subject, *arguments, progress=progress)

    return Execution(subject, run)


def planned_subject(name: str, promise: Declared | None, threads: int = 1) -> Subject:
    """The subject of a name, for planning and judging only: a rule, or a function that is not loaded."""
    if promise is None:
        return RuleSubject(rules.get(name), threads)
    return function_subject(_not_loaded, name, promise)


def _not_loaded(*_: Any) -> Any:
    raise AssertionError("the verifier runs in a child process")


def is_rule(name: str) -> bool:
    """Whether `name` is a built-in rule, with or without parameters, and not a function of a module."""
    if adapters.is_engine(name):
        return False
    return ":" not in name or name.partition(":")[0] in rules.names()


class Child:
    """Runs jobs on the verifier `reference`: `job(subject, *arguments, progress=...)`, a module's function.

    Raises ValueError if the verifier cannot be loaded."""

    def __init__(self, reference: str, timeout: float):
        self.reference = reference
        self.timeout = timeout
        self._patience = timeout + GRACE
        self._process: subprocess.Popen[bytes] | None = None
        self._end: Connection | None = None
        self._interrupted = False
        self.declared: Declared = self._start()

    def run(self, job: Callable[..., Any], *arguments: Any, progress: Progress | None = None) -> Any:
        """The result of `job`. Raises BrokenVerifier if the child hangs or dies.

        After Ctrl-C only an answer that has already arrived is returned; later jobs raise KeyboardInterrupt.
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
            try:
                return self._await(None, 0.0)
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
                    raise BrokenVerifier(f"hung: no sign of life for {patience:g} s")
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
    last: dict[str, float] = {}

    def sign(kind: str, value: Any = None) -> None:
        if (now := time.monotonic()) - last.get(kind, 0.0) > SIGN_EVERY:
            last[kind] = now
            try:
                end.send((kind, value))
            except ConnectionError:  # the parent is gone
                os._exit(1)

    def announce_and_call(*arguments: Any, **keywords: Any) -> Any:
        sign("alive")
        return function(*arguments, **keywords)

    try:
        function = load(reference)
        subject = function_subject(announce_and_call, reference, declared(function), timeout)
    except (ValueError, TypeError) as error:
        end.send(("error", ValueError(str(error))))
        return
    end.send(("result", subject.declared))
    while True:
        try:
            job, arguments = end.recv()
            result = job(subject, *arguments, progress=lambda done, total: sign("progress", (done, total)))
            end.send(("result", result))
        except (EOFError, ConnectionError, KeyboardInterrupt):  # the parent has ended
            return
        except (ValueError, TypeError, BrokenVerifier, NotADraftPath) as error:
            end.send(("error", error))


def load(reference: str) -> Verifier:
    """Import "package.module:function", or the function of an adapter such as "hf:generate,top_k=3".

    Raises ValueError with the part that is missing."""
    if adapters.is_engine(reference):
        return adapters.get(reference)
    module_name, _, function_name = reference.partition(":")
    if not module_name or not function_name:
        raise ValueError(
            f"verifier {reference!r}: expected a rule's name, an engine's, or package.module:function"
        )
    if os.getcwd() not in sys.path:  # as `python -m` would find it
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # a module may raise anything on import
        raise ValueError(
            f"verifier {reference!r}: cannot import {module_name} ({type(error).__name__}: {error})"
        ) from error
    function = getattr(module, function_name, None)
    if not callable(function):
        raise ValueError(f"verifier {reference!r}: {module_name} has no function {function_name}")
    return function


def _run_each(
    workers: Workers,
    reference: str,
    timeout: float,
    work: Callable[[Execution, Any], Any],
    arguments: Sequence[Any],
) -> Iterator[tuple[int, Any]]:
    """See `Execution`. Raises ValueError if a worker cannot load the verifier, and as `Workers.results`."""
    code = sources_digest()
    tasks = [Task(_run_in_worker, (code, reference, timeout, work, one)) for one in arguments]
    number, waiting = {task: i for i, task in enumerate(tasks)}, iter(tasks)
    # the tasks are few and long: all of them are submitted at once
    for task, _, result in workers.results(lambda: next(waiting, None), room=len(tasks)):
        yield number[task], result


_own = threading.local()


def _run_in_worker(
    code: str, reference: str, timeout: float, work: Callable[[Execution, Any], Any], argument: Any
) -> Any:
    check_same_code(code)
    child: Child | None = getattr(_own, "child", None)  # kept by this thread for its next task
    if child is None or (child.reference, child.timeout) != (reference, timeout):
        if child is not None:
            child.close()
        try:
            child = _own.child = Child(reference, timeout)
        except ValueError as error:
            raise ValueError(f"a worker cannot load the verifier: {error}") from error
    return work(Execution(planned_subject(reference, child.declared), child.run), argument)
