"""The jobs that run in the process of the verifier: a child process, a worker, or this process.

A job is called as job(subject, *arguments, progress=...). Its arguments and its result are sent between
processes, so both are small: jobs count, the parent plans and judges."""

import hashlib
import sys
import time
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from specsim import rules
from specsim.auditing import adapters
from specsim.auditing._checks.contract_checks import check_promises
from specsim.auditing._checks.subjects import RuleSubject, Subject, VerifierSubject
from specsim.auditing._diagnosis.dependence import Signature, signature
from specsim.auditing._diagnosis.outcomes import OutcomeTally
from specsim.auditing._verifier.contract import BrokenVerifier, NotADraftPath
from specsim.core._streams import Key
from specsim.core._types import Ints
from specsim.simulation._counting import Failure, Partial, Progress, Tally, add_up, count_chunks
from specsim.simulation._executors import count_spans
from specsim.simulation._sources import Batch, Batches

#: Steps that are searched for an outcome.
SEARCHED_STEPS = 2**13


@dataclass(frozen=True)
class Steps:
    """Steps [first, first + steps) of a case to count.

    `patience` is a factor of the time-out of each call."""

    case: str
    key: Key
    first: int
    steps: int
    patience: float = 1.0


def count(subject: Subject, asked: Steps, progress: Progress | None = None) -> Partial:
    """Count the steps `asked` of a case of the audit or of its diagnosis.

    Raises BrokenVerifier or NotADraftPath if a step breaks the contract."""
    source, tally = subject.counter(asked.case, asked.patience)
    intervals = [(asked.first, asked.first + asked.steps)]
    if isinstance(subject, RuleSubject) and subject.workers is not None:
        job = _RuleCase(rules.registered_spec(subject.rule), asked.case)
        parts = count_spans(subject.workers, job, asked.key, intervals, source.chunk)
    else:
        parts = count_chunks(source, tally, asked.key, intervals, threads=subject.threads)
    return add_up(parts, tally, asked.steps, progress)


def count_case(subject: Subject, asked: Steps, progress: Progress | None = None) -> Partial:
    """Count and time the steps `asked`; a broken contract is a failure of the result."""
    started = time.perf_counter()
    try:
        found = count(subject, asked, progress)
    except NotADraftPath as error:
        found = Partial({}, failures=(Failure("path", str(error)),))
    except BrokenVerifier as error:
        text = f"{error}{_smallest_call(subject, asked)}"
        found = Partial({}, failures=(Failure("contract", text),))
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


def _smallest_call(subject: Subject, asked: Steps) -> str:
    """A sentence with the fewest rows of a call, among powers of two up to 4,096, that break the verifier.

    Empty for decoders and verifiers of trees, which are called step by step, and if no such call breaks it.
    """
    source: Any = subject.counter(asked.case, asked.patience)[0]
    if not isinstance(subject, VerifierSubject) or subject.declared.tree:
        return ""
    for steps in (2**k for k in range(13)):
        try:
            for _ in source.batches(asked.key, 0, steps):
                pass
        except (BrokenVerifier, NotADraftPath):
            rows = source.verify.rows_of_a_call(steps)
            return f"; a call of {rows} row{'s' if rows > 1 else ''} shows it"
    return ""


def check(subject: VerifierSubject, key: Key, progress: Progress | None = None) -> Partial:
    """Which promises of a verifier are broken."""
    findings = check_promises(subject.function, subject.declared, key, subject.timeout)
    return Partial({}, failures=tuple(Failure(one.kind, one.text) for one in findings))


def code_digest(subject: Subject, progress: Progress | None = None) -> str | None:
    """The SHA-256 of the file of the verifier's module, None if there is no file."""
    module = sys.modules.get(subject.name.partition(":")[0])
    file = getattr(module, "__file__", None)
    if file is None or adapters.is_engine(subject.name):
        return None
    with open(file, "rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def tokens(subject: Subject, asked: Steps, progress: Progress | None = None) -> Ints:
    """The emitted tokens [positions, steps]."""
    source, _ = subject.counter(asked.case)
    batches = source.batches(asked.key, asked.first, asked.steps)
    return np.concatenate([batch.tokens for batch in batches], axis=1)


def batch_of(
    subject: Subject, case: str, key: Key, ends: list[int], step: int, progress: Progress | None = None
) -> Batch:
    """A batch of that step only, drawn with the audit's rng, in pieces that end at `ends`."""
    source, _ = subject.counter(case)
    end = next(end for end in ends if step < end)
    start = max((other for other in ends if other <= step), default=0)
    first = start + (step - start) // source.chunk * source.chunk
    batches = source.batches(key, first, min(source.chunk, end - first))
    batch = next(one for one in batches if step < one.first + len(one.accepted))
    one = slice(step - batch.first, step - batch.first + 1)
    rows: Any = batch.rows
    if rows is not None:
        arrays = {field.name: getattr(rows, field.name) for field in fields(rows)}
        rows = replace(rows, **{name: array[one] for name, array in arrays.items() if array is not None})
    return Batch(step, batch.tokens[:, one], batch.accepted[one], rows)


def find_outcome(
    subject: Subject, case: str, key: Key, cell: tuple[int, ...], progress: Progress | None = None
) -> int | None:
    """The first step with that outcome among the first `SEARCHED_STEPS` of a diagnostic case."""
    source, tally = subject.counter(case)
    assert isinstance(tally, OutcomeTally)
    for batch in source.batches(key, 0, SEARCHED_STEPS):
        where = np.flatnonzero((tally.cells(batch) == np.array(cell)).all(axis=1))
        if len(where):
            return batch.first + int(where[0])
    return None


def shared_noise(subject: VerifierSubject, progress: Progress | None = None) -> Signature | None:
    """Which steps of a verifier depend on each other."""
    return signature(subject.function, subject.declared, subject.timeout)
