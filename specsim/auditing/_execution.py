"""Open what is audited, and count its steps: a built-in rule, a user's function here, or one in a child.

A function given by name may hang or crash, so it runs in a child process. Workers have child processes of
their own."""

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from specsim import adapters, rules
from specsim.adapters._contract import (
    BrokenVerifier,
    Declared,
    LostVerifier,
    NotADraftPath,
    Verifier,
    declared,
    on_device,
)
from specsim.auditing._checks.subjects import (
    DecoderSubject,
    RuleSubject,
    Subject,
    VerifierSubject,
    function_subject,
)
from specsim.auditing._verifier.arrays import Device
from specsim.auditing._verifier.child import Child, Children
from specsim.auditing._verifier.local import Local
from specsim.auditing._verifier.origin import Origin, origin_of
from specsim.auditing._verifier.requests import Callee
from specsim.core._progress import Progress
from specsim.core._registry import suggestion
from specsim.core._streams import Key
from specsim.models import Pair
from specsim.rules import Rule
from specsim.simulation._counting import Failure, Partial, Tally, add_up, count_chunks, count_in_turn
from specsim.simulation._executors import Workers, count_spans
from specsim.simulation._sources import Batches

#: Processes of a verifier at most: each has a copy of all that it imports, and what draws and counts for them
#: keeps few more busy.
MOST_PROCESSES = 4


@dataclass(frozen=True)
class Elsewhere:
    """The workers that count the cases of a user's verifier, its name there, and the time-out of a call."""

    workers: Workers
    reference: str
    timeout: float


@dataclass(frozen=True)
class Execution:
    """A subject, and what counts its cases: workers `elsewhere`, or this process and the subject's own
    workers. `origin` is that of a user's function, `device` where its arrays are, if that is not the CPU."""

    subject: Subject
    elsewhere: Elsewhere | None = None
    origin: Origin | None = None
    device: Device | None = None

    @property
    def children(self) -> Children | None:
        """The processes of a verifier, if there may be several. On a device there is one, which has the
        device to itself."""
        callee = getattr(self.subject, "callee", None)
        return callee if isinstance(callee, Children) and self.device is None else None

    @property
    def threads(self) -> int:
        """The threads or processes that may count at a time."""
        return self.subject.threads if self.children is None else self.children.most


@contextmanager
def open_execution(
    verifier: str | Rule | Verifier,
    threads: int,
    timeout: float,
    workers: Workers | None = None,
    device: str | None = None,
) -> Iterator[Execution]:
    """Open the execution of `verifier`: a rule or its name, package.module:function, or a function.

    `workers` count the steps of a rule, or of a verifier given by name. The arrays of a verifier are on
    `device`, or where it declares. Raises ValueError for an unknown name, for a function together with
    workers, and for a device that is not there, TypeError for anything else."""
    if verifier == "":
        raise ValueError("verifier: empty; give a rule's name, or package.module:function")
    if isinstance(verifier, str):
        _check_no_file(verifier)
    if device is not None and workers is not None:
        raise ValueError(
            "device: workers put arrays where the verifier declares; declare device=… there, or leave "
            "executor out"
        )
    if isinstance(verifier, str) and not is_rule(verifier):
        elsewhere = None if workers is None else Elsewhere(workers, verifier, timeout)
        most = 1 if elsewhere else min(threads, MOST_PROCESSES)
        with closing(Child(verifier, device) if most == 1 else Children(verifier, device, most)) as child:
            subject = function_subject(child, verifier, timeout)
            yield Execution(subject, elsewhere, child.origin, _not_the_cpu(child))
    elif isinstance(verifier, str | Rule):
        if isinstance(verifier, str):
            check_name(verifier)
        if device not in (None, "cpu"):
            raise ValueError(
                f"device: {device!r} for a built-in rule, which is counted on the CPU here; specsim.simulate "
                "counts its steps on a GPU"
            )
        yield Execution(RuleSubject(rules.get(verifier), threads, workers))
    elif not callable(verifier):
        raise TypeError(f"verifier: expected a rule's name or a function, got {type(verifier).__name__}")
    elif workers is not None:
        raise ValueError(
            "executor: a function cannot be sent to workers; give its name, package.module:function"
        )
    else:
        name = f"{getattr(verifier, '__module__', '?')}:{getattr(verifier, '__qualname__', repr(verifier))}"
        local = Local(verifier, on_device(declared(verifier), device))
        subject = function_subject(local, name, timeout)
        yield Execution(subject, origin=origin_of(verifier), device=_not_the_cpu(local))


def _not_the_cpu(callee: Callee) -> Device | None:
    return None if callee.declared.device == "cpu" else callee.device


def with_pair(execution: Execution, pair: Any) -> Execution:
    """The execution with a case of `pair` too, a Pair or (target, draft).

    Raises ValueError for a decoder, and where cases are counted by workers, which do not have the pair."""
    subject = execution.subject
    if isinstance(subject, DecoderSubject):
        raise ValueError("pair: a decoder is audited with models of its own cases; give a verifier")
    if execution.elsewhere is not None or (isinstance(subject, RuleSubject) and subject.workers is not None):
        raise ValueError("pair: workers do not have it; audit it without an executor")
    try:
        given = pair if isinstance(pair, Pair) else Pair(*pair)
    except TypeError:
        raise ValueError("pair: expected a Pair, or a target and a draft") from None
    found = replace(subject, pair=given)
    _ = found.cases  # raises for what is no pair
    return replace(execution, subject=found)


@dataclass(frozen=True)
class Steps:
    """Steps [first, first + steps) of a case to count.

    `patience` is a factor of the time-out of each call, and no part of what is counted."""

    case: str
    key: Key
    first: int
    steps: int
    patience: float = field(default=1.0, compare=False)


def count_steps(subject: Subject, asked: Steps, progress: Progress | None = None) -> Partial:
    """Count the steps `asked` of a case of the audit or of its diagnosis.

    Raises BrokenVerifier or NotADraftPath if a step breaks the contract."""
    source, tally = subject.counter(asked.case, asked.patience)
    intervals = [(asked.first, asked.first + asked.steps)]
    if isinstance(subject, RuleSubject) and subject.workers is not None:
        job = _RuleCase(rules.registered_spec(subject.rule), asked.case)
        parts = count_spans(subject.workers, job, asked.key, intervals, source.chunk)
    elif isinstance(subject, VerifierSubject):
        parts = count_in_turn(source, tally, asked.key, asked.first, asked.steps)
    else:
        parts = count_chunks(source, tally, asked.key, intervals, threads=subject.threads)
    return add_up(parts, tally, asked.steps, progress)


def count_case(subject: Subject, asked: Steps, progress: Progress | None = None) -> Partial:
    """Count and time the steps `asked`; a broken contract is a failure of the result."""
    started = time.perf_counter()
    try:
        found = count_steps(subject, asked, progress)
    except NotADraftPath as error:
        found = Partial({}, failures=(Failure("path", str(error)),))
    except BrokenVerifier as error:
        where, details = "", error.details
        if not isinstance(error, LostVerifier):
            where, details = _smallest_call(subject, asked, details)
        found = Partial({}, failures=(Failure("contract", f"{error}{where}", details),))
    return replace(found, seconds=time.perf_counter() - started)


@dataclass(frozen=True)
class _RuleCase:
    """A case of a built-in rule as a `specsim.simulation._executors.Job`."""

    rule: str
    case: str

    @cached_property
    def counter(self) -> tuple[Batches, Tally]:
        return RuleSubject(rules.get(self.rule), 1).counter(self.case)

    def source(self) -> Batches:
        return self.counter[0]

    def tally(self, source: Batches) -> Tally:
        return self.counter[1]


def _smallest_call(subject: Subject, asked: Steps, details: str) -> tuple[str, str]:
    """A sentence with the fewest rows of a call, among powers of two up to 4,096, that break the verifier,
    and the traceback there.

    Without a sentence for decoders and verifiers of trees, which are called step by step, and if no such call
    breaks it: then `details` is the traceback."""
    source: Any = subject.counter(asked.case, asked.patience)[0]
    if not isinstance(subject, VerifierSubject) or subject.declared.tree:
        return "", details
    for steps in (2**k for k in range(13)):
        try:
            for _ in source.batches(asked.key, 0, steps):
                pass
        except (BrokenVerifier, NotADraftPath) as error:
            rows = source.rows_of_a_call(steps)
            said = f"; a call of {rows} row{'s' if rows > 1 else ''} shows it"
            return said, getattr(error, "details", "") or details
    return "", details


def planned_subject(name: str, promise: Declared | None, threads: int = 1) -> Subject:
    """The subject of a name, for planning and judging only: a rule, or a function that is not loaded."""
    if promise is None:
        return RuleSubject(rules.get(name), threads)
    return function_subject(Local(_not_loaded, promise), name)


def _not_loaded(*_: Any) -> Any:
    raise AssertionError("this subject plans and judges only")


def is_rule(name: str) -> bool:
    """Whether `name` is a built-in rule, with or without parameters, and not a function of a module."""
    if adapters.is_engine(name):
        return False
    return ":" not in name or name.partition(":")[0] in rules.names()


def check_name(verifier: str) -> None:
    """Raise ValueError for a name that is neither a rule's nor an engine's, with what may have been meant."""
    _check_no_file(verifier)
    name = verifier.partition(":")[0]
    if name in rules.names():
        return
    module, dot, function = name.rpartition(".")
    if dot:
        raise ValueError(
            f"verifier: {name!r} is a module, or a function of one; a function is written with a colon, as "
            f"{module}:{function}"
        )
    meant = suggestion(name, [*rules.names(), *adapters.names()])
    raise ValueError(
        f"unknown rule or engine {name!r}{meant} See 'specsim list rules' and 'specsim list engines'; "
        "a function is written package.module:function"
    )


def _check_no_file(verifier: str) -> None:
    """Raise ValueError for the path of a file in place of its module."""
    path, _, function = verifier.partition(":")
    if path.endswith(".py"):
        raise ValueError(
            f"verifier: {verifier!r} names a file; give its module and the function, as "
            f"{Path(path).stem}:{function or 'verify'}, in the folder of the file"
        )
