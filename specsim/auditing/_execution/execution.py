"""Where a verifier runs: in this process, or, given by name, in a child."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from specsim import rules
from specsim.auditing._checks.subjects import RuleSubject, Subject, function_subject
from specsim.auditing._execution import workers as elsewhere
from specsim.auditing._execution.child_process import Child
from specsim.auditing._verifier.contract import Declared, Verifier, declared
from specsim.auditing.adapters import is_engine
from specsim.rules import Rule
from specsim.simulation._counting import Progress
from specsim.simulation._executors import Workers

__all__ = ["Place", "is_rule", "placed"]


@dataclass(frozen=True)
class Place:
    """A subject, and how a job is run on it: `run(job, *arguments, progress=…)` is job(subject, *arguments, …) there.

    `subject` plans the cases; in a child process another one, with the function itself, runs them. `run_each(job, arguments)`
    gives (i, job(subject, arguments[i]), or the BrokenVerifier that it ended with) as they come: side by side, on workers; it
    is None where jobs are run here, one after the other.
    """

    subject: Subject
    run: Callable[..., Any]
    run_each: Callable[[Callable[..., Any], Sequence[Any]], Iterator[tuple[int, Any]]] | None = None


@contextmanager
def placed(
    verifier: str | Rule | Verifier, threads: int, timeout: float, workers: Workers | None = None
) -> Iterator[Place]:
    """The place of `verifier`, a rule or its name, package.module:function or a function, until the context ends.

    With `workers` they count a rule's steps, and run whole jobs on a verifier given by name. Raises ValueError for a name that
    is neither, and for a function together with workers; TypeError for anything else.
    """
    if isinstance(verifier, str) and not is_rule(verifier):
        with closing(Child(verifier, timeout)) as child:
            run_each = None if workers is None else partial(elsewhere.run_each, workers, verifier, timeout)
            yield Place(planned_subject(verifier, child.declared), child.run, run_each)
        return
    subject = _subject(verifier, threads, timeout, workers)

    def run(job: Callable[..., Any], *arguments: Any, progress: Progress | None = None) -> Any:
        return job(subject, *arguments, progress=progress)

    yield Place(subject, run)


def planned_subject(name: str, promise: Declared | None, threads: int = 1) -> Subject:
    """What a name means, for planning and judging alone: a rule, or a function that declares `promise` and is not loaded."""
    return (
        RuleSubject(rules.get(name), threads)
        if promise is None
        else function_subject(_elsewhere, name, promise)
    )


def is_rule(name: str) -> bool:
    """Whether `name` means a built-in rule, perhaps with parameters, rather than a function of a module."""
    if is_engine(name):
        return False
    return ":" not in name or name.partition(":")[0] in rules.names()


def _subject(
    verifier: str | Rule | Verifier, threads: int, timeout: float, workers: Workers | None
) -> Subject:
    if isinstance(verifier, str | Rule):
        return RuleSubject(rules.get(verifier), threads, workers)
    if callable(verifier) and workers is not None:
        raise ValueError(
            "executor: a function cannot be sent; name the verifier by what workers can import, package.module:function"
        )
    if not callable(verifier):
        raise TypeError(f"verifier: expected a rule's name or a function, got {type(verifier).__name__}")
    name = f"{getattr(verifier, '__module__', '?')}:{getattr(verifier, '__qualname__', repr(verifier))}"
    return function_subject(verifier, name, declared(verifier), timeout)


def _elsewhere(*_: Any) -> Any:
    raise AssertionError("the verifier runs in a process of its own")
