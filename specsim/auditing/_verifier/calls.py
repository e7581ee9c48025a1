"""Calls of a user's verifier: rows in, checked tokens out.

Each batch is verified in at least two calls with one generator, so that the counts show random numbers shared
by rows or by calls. Any error inside the verifier is raised as `BrokenVerifier`."""

import os
import re
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from specsim.auditing._cases.battery import Case
from specsim.auditing._cases.rows import CaseRows, row_dtype, rows_of
from specsim.auditing._verifier.arrays import as_path, as_tokens, converter, read_tokens
from specsim.auditing._verifier.contract import BrokenVerifier, Declared, Verifier
from specsim.core._streams import Key, Purpose, uniforms
from specsim.core._types import Ints, TokenArray
from specsim.simulation._rows import Rows
from specsim.simulation._sources import RowSource

#: Seconds after which a call counts as hanging.
TIMEOUT = 60.0
#: Steps at the start of a case whose inputs are compared with copies after the call.
COMPARED_STEPS = 512
#: Bytes of rows in a batch of two calls: more than for built-in rules, since calls from Python are slow.
BATCH_BYTES = 2**23
#: NumPy's message for a write to a read-only array; Cython's "buffer source array is read-only" is no write.
_WRITTEN = re.compile(r"(?<!buffer source )array is read-only|destination is read-only")


@dataclass(frozen=True)
class Calls:
    """`function`, called as it declares on the rows of `case`, as a `RowVerifier` of the simulation."""

    function: Verifier
    declared: Declared
    case: Case
    convert: Callable[[Any], Any]
    timeout: float

    @classmethod
    def of(cls, function: Verifier, declared: Declared, case: Case, timeout: float = TIMEOUT) -> Self:
        return cls(function, declared, case, converter(declared), timeout)

    def __call__(self, rows: Rows, key: Key, first: int) -> tuple[TokenArray, Ints]:
        rng = np.random.default_rng([*key, first])
        steps = len(rows.draft_tokens)
        extras = self.extras(key, first, rows)
        dtype = row_dtype(self.case.dtype)
        rows = replace(rows, p=rows.p.astype(dtype, copy=False), q=rows.q.astype(dtype, copy=False))
        inputs = {"draft_tokens": rows.draft_tokens, "p": rows.p, "q": rows.q}
        before = {name: array.copy() for name, array in inputs.items()} if first < COMPARED_STEPS else {}
        if self.declared.tree:
            parts = [self._walk(rows, s, rng, first) for s in range(steps)]
        else:
            parts = self._parts(rows, self.rows_of_a_call(steps), rng, extras)
        for name, array in before.items():  # tensors that share the memory are not read-only
            if not np.array_equal(array, inputs[name]):
                raise BrokenVerifier(f"altered its input {name}")
        tokens = np.concatenate(parts)
        if self.declared.tree:
            return np.ascontiguousarray(tokens.T, dtype=np.int32), (tokens >= 0).sum(axis=1) - 1
        return read_tokens(tokens, rows.draft_tokens, extras.get("lengths"), rows.p.shape[2], first)

    def rows_of_a_call(self, steps: int) -> int:
        """The rows of each call in a batch of `steps`: half of them, or the declared `batch`."""
        return max(1, min(-(-steps // 2), self.declared.batch or steps))

    def once(self, rows: Rows, extras: dict[str, Any]) -> Ints:
        """The checked tokens [B, γ+1] of one call (or one for each `batch` rows) with a fixed seed."""
        steps, rng = len(rows.draft_tokens), np.random.default_rng(0)
        tokens = np.concatenate(self._parts(rows, self.declared.batch or steps, rng, extras))
        read_tokens(tokens, rows.draft_tokens, extras.get("lengths"), rows.p.shape[2], 0)
        return tokens

    def extras(self, key: Key, first: int, rows: Rows) -> dict[str, Any]:
        """The declared keyword arguments of all rows; half of the rows have a seed."""
        steps, gamma = rows.draft_tokens.shape
        extras: dict[str, Any] = {}
        if self.declared.lengths:
            lengths = rows.lengths if isinstance(rows, CaseRows) else None
            extras["lengths"] = np.full(steps, gamma) if lengths is None else lengths
        if self.declared.uniforms:
            u = uniforms(key, int(Purpose.VERIFY), first, steps, gamma + 1)
            extras["uniforms"] = np.ascontiguousarray(u.T)
        if self.declared.seeds:
            seeds = (uniforms(key, int(Purpose.VERIFY), first, steps, gamma + 2)[-1] * 2**40).astype(np.int64)
            extras["seeds"] = [int(seed) if seed % 2 else None for seed in seeds]
        return extras

    def _parts(
        self, rows: Rows, size: int, rng: np.random.Generator, extras: dict[str, Any]
    ) -> list[NDArray[Any]]:
        """Calls of `size` rows in turn; results are copied, since the verifier may reuse its buffer."""
        parts, (steps, gamma) = [], rows.draft_tokens.shape
        for part in (slice(start, min(start + size, steps)) for start in range(0, steps, size)):
            given = {
                name: value[part] if isinstance(value, list) else self.convert(value[part])
                for name, value in extras.items()
            }
            inputs = [self.convert(array[part]) for array in (rows.draft_tokens, rows.p)]
            inputs.append(None if self.case.certain else self.convert(rows.q[part]))
            output = call_safely(self.function, *inputs, rng, timeout=self.timeout, **given)
            parts.append(as_tokens(output, (part.stop - part.start, gamma + 1)).astype(np.int64))
        return parts

    def _walk(self, rows: Rows, s: int, rng: np.random.Generator, first: int) -> Ints:
        """One step over a tree; its tokens [1, depth+1]."""
        arrays = (self.convert(array[s]) for array in (rows.parents, rows.draft_tokens, rows.p, rows.q))
        output = call_safely(self.function, *arrays, rng, timeout=self.timeout)
        path, token = as_path(output, rows.parents[s], rows.p.shape[2], first + s)
        tokens = np.full((1, self.case.tree.depth + 1), -1, dtype=np.int64)
        tokens[0, : len(path)] = rows.draft_tokens[s, [node - 1 for node in path]]
        tokens[0, len(path)] = token
        return tokens


def verifier_source(
    function: Verifier, declared: Declared, case: Case, timeout: float = TIMEOUT
) -> RowSource:
    """The steps of `case`, verified by `function`."""
    return RowSource(rows_of(case), Calls.of(function, declared, case, timeout), BATCH_BYTES)


def call_safely(function: Verifier, *arguments: Any, timeout: float, **keywords: Any) -> Any:
    """Call `function`. Exceptions except Ctrl-C, and more than `timeout` seconds, raise `BrokenVerifier`."""
    try:
        with _time_limit(timeout):
            return function(*arguments, **keywords)
    except _Hung:
        raise BrokenVerifier(f"hung: a call took longer than {timeout:g} s") from None
    except (BrokenVerifier, KeyboardInterrupt):
        raise
    except BaseException as error:  # a panic in Rust is not an Exception
        if isinstance(error, ValueError) and _WRITTEN.search(str(error)):
            raise BrokenVerifier(f"altered its input: {_where(error)}") from error
        raise BrokenVerifier(f"raised {type(error).__name__}: {error}") from error


class _Hung(BaseException):
    """The time limit; not an Exception, so that a verifier's `except Exception` does not catch it."""


def _where(error: BaseException) -> str:
    """The line of the verifier that raised."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{frame.line} ({os.path.basename(frame.filename)}, line {frame.lineno})"


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """Stop Python code that takes longer, in the main thread only: a child's parent has a time-out too."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def give_up(*_: Any) -> None:
        raise _Hung

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
