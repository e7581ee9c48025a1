"""Count spans of steps on executors: processes, a cluster, any `concurrent.futures.Executor`.

A *span* is a sequence of whole chunks that takes a worker about a second, given by (key, first step, steps).
The *job* says what to count; a worker gets it once and caches it. Steps are functions of (key, step), so the
counts depend neither on the spans nor on the workers.

The number of submitted spans grows while spans wait for a worker less than they run. The spans of a worker
that dies are run again: a pool of processes is replaced, and Dask recovers by itself."""

import hashlib
import os
import pickle
import signal
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Executor, Future, wait
from concurrent.futures.process import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from typing import Any

from specsim.core._json import described
from specsim.core._kernels import available_threads, sources_digest
from specsim.core._streams import Key
from specsim.core._tables import installing
from specsim.simulation._counting import Interval, Partial, Tally, run
from specsim.simulation._sources import Batches

#: Names of executors, and what the address of a Dask scheduler begins with.
NAMES = ("threads", "processes", "dask")
ADDRESSES = ("tcp://", "tls://", "ucx://", "ws://", "wss://")

#: Seconds of a span, and the largest ratio of its length to that of the last measured span.
SPAN_SECONDS, GROWTH = 1.0, 4
#: Submitted tasks, at first and at most.
FIRST_IN_FLIGHT, MOST_IN_FLIGHT = 2, 1024
#: A span is at most 1/SHARE_LEFT of the remaining steps, so that workers end together.
SHARE_LEFT = 4
#: Times that a pool may break with the same task, and jobs that a worker caches.
TRIES, KEPT = 3, 4
#: Seconds without a result after which the connection to the scheduler is checked, and the time-out of the
#: first connection: long for a scheduler that is there, and short for a wrong address.
LISTEN, CONNECT = 5.0, 15.0
REMEDY = "define its models as classes of a module that workers can import, or use executor='threads'"


class LostWorkers(ConnectionError):
    """The executor has ended, or its workers die repeatedly."""


#: What to count, in a form that can be pickled; a worker calls it once for all spans.
Job = Callable[[], tuple[Batches, Tally]]


@contextmanager
def workers_of(executor: Executor | str | None, threads: int | None = None) -> "Iterator[Workers | None]":
    """Open the workers of `executor` as a context; None for the threads of this process. "processes" and
    "dask" start `threads` processes, by default one for each core; an object stays open. Raises ValueError
    for an unknown name or without Dask, TypeError without `submit`, LostWorkers if no scheduler answers."""
    if isinstance(executor, type):
        raise TypeError(f"executor: {executor.__name__} is a class; give one of its objects")
    if hasattr(executor, "get_executor"):
        raise TypeError("executor: is a Dask client; give client.get_executor(), or the scheduler's address")
    if executor is None or executor == "threads":
        yield None
    elif executor == "processes":
        with _process_workers(available_threads(threads)) as workers:
            yield workers
    elif callable(getattr(executor, "submit", None)):
        assert not isinstance(executor, str)
        yield Workers(f"the executor ({type(executor).__name__})", executor)
    elif not isinstance(executor, str):
        kind = type(executor).__name__
        raise TypeError(f"executor: {kind} has no submit(); give a name, or such as a ProcessPoolExecutor")
    elif executor == "dask" or executor.startswith(ADDRESSES):
        with _dask_executor(executor, available_threads(threads)) as found:
            yield Workers(f"Dask ({executor})", found)
    else:
        raise ValueError(
            f"executor: {executor!r} is unknown; give one of {', '.join(NAMES)}, or the address of a Dask "
            "scheduler, such as tcp://host:8786"
        )


@contextmanager
def _process_workers(processes: int) -> "Iterator[Workers]":
    def start() -> Executor:
        return ProcessPoolExecutor(processes, mp_context=get_context("spawn"), initializer=_begin_process)

    workers = Workers("processes", start(), start)
    try:
        yield workers
    except BaseException:
        _end_processes(workers.executor)
        raise
    workers.executor.shutdown()


def _end_processes(executor: Executor) -> None:
    for process in list((getattr(executor, "_processes", None) or {}).values()):
        process.terminate()
    # a process may have written half of a result: the pool waits for the rest as long as anyone can write it
    if (results := getattr(executor, "_result_queue", None)) is not None:
        results._writer.close()
    executor.shutdown(cancel_futures=True)


def _begin_process() -> None:
    """Initialise a process of the pool: it ignores Ctrl-C, and ends with its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent: Any = parent_process()

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _dask_executor(name: str, processes: int) -> Iterator[Executor]:
    try:
        from distributed import Client, LocalCluster
    except ImportError as error:
        raise ValueError(f"executor: {name!r} needs Dask, which is missing; {installing('dask')}") from error
    with ExitStack() as stack:
        if name == "dask":
            cluster = LocalCluster(n_workers=processes, threads_per_worker=1, dashboard_address=None)
            name = stack.enter_context(cluster).scheduler_address
        try:
            client = stack.enter_context(Client(name, timeout=CONNECT))
        except OSError as error:
            raise LostWorkers(f"executor: no Dask scheduler answers at {name} ({error}); start it") from error
        except ValueError as error:
            raise ValueError(f"executor: {name} is not an address ({error}); give tcp://host:8786") from error
        yield client.get_executor(pure=False)


@dataclass(eq=False)
class Task:
    """A call for a worker: a module's function, and arguments that can be pickled."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    broke: int = 0


class Workers:
    """Runs tasks on `executor`; `renew` makes a new one after it has broken."""

    def __init__(self, name: str, executor: Executor, renew: Callable[[], Executor] | None = None):
        self.name = name
        self.executor = executor
        self._renew = renew

    def results(
        self, next_task: Callable[[], Task | None], room: int = FIRST_IN_FLIGHT
    ) -> Iterator[tuple[Task, float, Any]]:
        """Yield (task, seconds in its worker, result) of every task, in the order of completion.

        `next_task()` is called while fewer than `room` tasks are submitted, a number that grows; it returns
        None if it has no task now. Raises the exception of a task, and LostWorkers if the executor breaks and
        cannot be renewed, or has broken three times with one task. The end cancels pending tasks, and
        terminates the running processes of a pool of specsim's."""
        pending: dict[Future[Any], tuple[Task, float]] = {}
        lost: deque[Task] = deque()
        try:
            while True:
                while len(pending) < room and (task := lost.popleft() if lost else next_task()) is not None:
                    try:
                        pending[self._submit(task)] = task, time.monotonic()
                    except BrokenExecutor as error:
                        task.broke += 1
                        lost.appendleft(task)
                        if not pending:  # else the pending ones report it
                            self._broken(error, task.broke)
                        break
                if not pending and not lost:
                    return
                broken: Exception | None = None
                for future in self._finished(pending) if pending else ():
                    task, sent = pending.pop(future)
                    try:
                        seconds, result = future.result()
                    except (BrokenExecutor, CancelledError) as error:
                        broken, task.broke = error, task.broke + 1
                        lost.append(task)
                        continue
                    except Exception as error:
                        if type(error).__name__ != "KilledWorker":  # raised by Dask after three deaths
                            raise
                        raise LostWorkers(f"{self.name}: {error}") from error
                    if time.monotonic() - sent < 2 * seconds:  # it ran longer than it waited
                        room = min(room + 1, MOST_IN_FLIGHT)
                    yield task, seconds, result
                if broken is not None:
                    self._broken(broken, max(task.broke for task in lost))
        finally:
            if self._renew is None:
                for future in pending:
                    future.cancel()
            elif pending:
                # a future cancelled here could fail in the pool's own thread once its processes end
                _end_processes(self.executor)
                self.executor = self._renew()

    def _submit(self, task: Task) -> Future[Any]:
        try:
            found = self.executor.submit(_call_timed, task.function, *task.arguments)
        except BrokenExecutor:
            raise
        except Exception as error:
            raise LostWorkers(f"{self.name}: takes no work ({described(error)}); start it again") from error
        if not isinstance(found, Future):
            kind = type(found).__name__
            raise TypeError(f"{self.name}: submit() gave {kind}; return a concurrent.futures.Future")
        return found

    def _finished(self, pending: dict[Future[Any], Any]) -> set[Future[Any]]:
        """The futures that are done; all of them if one broke, since then the pool has broken."""
        while not (finished := wait(pending, LISTEN, return_when=FIRST_COMPLETED).done):
            # tasks of a Dask client without its scheduler never finish
            client = getattr(self.executor, "_client", None)
            if client is not None and client.status not in ("running", "newly-created"):
                raise LostWorkers(f"{self.name}: lost the scheduler (client {client.status}); start it again")
        if any(future.cancelled() or isinstance(future.exception(), BrokenExecutor) for future in finished):
            finished = wait(pending, LISTEN).done
        return finished

    def _broken(self, error: Exception, times: int) -> None:
        if self._renew is None:
            raise LostWorkers(
                f"{self.name}: lost in the middle of the run ({described(error)}); start it again"
            ) from error
        if times >= TRIES:
            raise LostWorkers(
                f"{self.name}: {times} times a worker died of one task; free memory, and call this in a "
                "script under if __name__ == '__main__':, since every process imports it"
            ) from error
        self.executor.shutdown(wait=False)
        self.executor = self._renew()


def _call_timed(function: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
    started = time.perf_counter()
    result = function(*arguments)
    return time.perf_counter() - started, result


def count_spans(
    workers: Workers, job: Job, key: Key, intervals: Sequence[Interval], chunk: int
) -> Iterator[Partial]:
    """The counts of each span of the steps in `intervals`, in any order. Raises as `Workers.results`."""
    try:
        packed = zlib.compress(pickle.dumps(job), 1)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise TypeError(f"executor: this run cannot be pickled ({error}); {REMEDY}") from error
    digest = hashlib.sha256(packed).hexdigest()
    spans = Spans(intervals, chunk)
    unknown: deque[Interval] = deque()

    def next_task() -> Task | None:
        known = not unknown
        span = spans.next() if known else unknown.popleft()
        if span is None:
            return None
        return Task(_count_span, (sources_digest(), digest, None if known else packed, key, *span))

    for task, seconds, counted in workers.results(next_task):
        if counted is None:  # the worker does not have the job yet
            unknown.append(task.arguments[-2:])
            continue
        spans.learn(counted.steps, seconds)
        yield counted


class Spans:
    """Splits intervals into spans of whole chunks of about a second, as measured; shorter at the end."""

    def __init__(self, intervals: Iterable[Interval], chunk: int):
        self._intervals, self._left = deque[Interval](), 0
        self._chunk = chunk
        self._chunks = 1
        self.extend(intervals)

    def extend(self, intervals: Iterable[Interval]) -> None:
        for first, end in intervals:
            self._intervals.append((first, end))
            self._left += end - first

    def clear(self) -> None:
        self._intervals.clear()
        self._left = 0

    def next(self) -> tuple[int, int] | None:
        """The (first, steps) of the next span; None after the last."""
        if not self._intervals:
            return None
        first, end = self._intervals.popleft()
        chunks = min(self._chunks, max(1, self._left // (SHARE_LEFT * self._chunk)))
        steps = min(chunks * self._chunk, end - first)
        if first + steps < end:
            self._intervals.appendleft((first + steps, end))
        self._left -= steps
        return first, steps

    def learn(self, steps: int, seconds: float) -> None:
        """A span of `steps` took `seconds`."""
        fitting = int(steps * SPAN_SECONDS / max(seconds, 1e-9)) // self._chunk
        self._chunks = max(1, min(fitting, GROWTH * max(1, steps // self._chunk)))


_jobs: dict[str, tuple[Batches, Tally]] = {}
_making = threading.Lock()


def _count_span(
    code: str, digest: str, packed: bytes | None, key: Key, first: int, steps: int
) -> Partial | None:
    """Count a span of the job `digest`; None if this worker lacks it and `packed` is None."""
    check_same_code(code)
    with _making:
        if digest not in _jobs:
            if packed is None:
                return None
            try:
                job: Job = pickle.loads(zlib.decompress(packed))
            except (ImportError, AttributeError) as error:
                raise TypeError(f"executor: a worker cannot import the run ({error}); {REMEDY}") from error
            while len(_jobs) >= KEPT:
                del _jobs[next(iter(_jobs))]
            _jobs[digest] = job()
        source, tally = _jobs[digest]
    return run(source, tally, key, first, steps, threads=1)


def check_same_code(code: str) -> None:
    """Raise ValueError in a worker unless its specsim has the sources_digest() `code`."""
    if code != sources_digest():
        raise ValueError("executor: a worker has another version of specsim; install one version everywhere")
