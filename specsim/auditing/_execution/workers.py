"""Jobs on somebody's verifier, given to workers: each worker has a child process of its own, in which the verifier runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from specsim.auditing._execution.child_process import Child
from specsim.auditing._verifier.contract import BrokenVerifier
from specsim.core._kernels import sources_digest
from specsim.simulation._executors import Task, Workers, check_same_code

__all__ = ["run_each"]


def run_each(
    workers: Workers, reference: str, timeout: float, job: Callable[..., Any], arguments: Sequence[Any]
) -> Iterator[tuple[int, Any]]:
    """(i, what `job(subject, arguments[i])` returns, or the BrokenVerifier that it ended with), as they come.

    Raises ValueError where a worker cannot load the verifier, and as `Workers.results`.
    """
    tasks = [Task(_run, (sources_digest(), reference, timeout, job, argument)) for argument in arguments]
    number = {task: i for i, task in enumerate(tasks)}
    waiting = iter(tasks)
    # few and long, so all of them are handed over at once
    for task, _, result in workers.results(lambda: next(waiting, None), room=len(tasks)):
        yield number[task], result


# --- in a worker -----------------------------------------------------------------------------------------

_own = threading.local()


def _run(code: str, reference: str, timeout: float, job: Callable[..., Any], argument: Any) -> Any:
    check_same_code(code)
    try:
        return _child(reference, timeout).run(job, argument)
    except BrokenVerifier as error:
        return error


def _child(reference: str, timeout: float) -> Child:
    """The child of this thread, kept from job to job."""
    child: Child | None = getattr(_own, "child", None)
    if child is not None and (child.reference, child.timeout) == (reference, timeout):
        return child
    if child is not None:
        child.close()
    try:
        _own.child = Child(reference, timeout)
    except ValueError as error:
        raise ValueError(f"a worker cannot load the verifier: {error}") from error
    return _own.child
