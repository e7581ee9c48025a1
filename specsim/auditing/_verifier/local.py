"""Call a user's function, in the process that has it."""

import contextlib
import linecache
import os
import re
import signal
import sysconfig
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count, repeat
from typing import Any

import numpy as np

from specsim.auditing._verifier.arrays import (
    as_path,
    as_sequence,
    as_texts,
    as_tokens,
    converter,
    described,
    padded,
)
from specsim.auditing._verifier.contract import SHOWN_BY, BrokenVerifier, Declared, NotADraftPath, Verifier
from specsim.auditing._verifier.pasting import call_as_code
from specsim.auditing._verifier.requests import Asked, RowsAsked, SequencesAsked
from specsim.core._types import Ints

#: NumPy's message for a write to a read-only array; Cython's "buffer source array is read-only" is no write.
_WRITTEN = re.compile(r"(?<!buffer source )array is read-only|destination is read-only")

#: Rows of a question, at least, that are compared with copies, if it has as many.
COMPARED_ROWS = 512
#: Frames of a traceback that are kept.
FRAMES = 12


@dataclass(frozen=True)
class Local:
    """A user's function in this process, as a `Callee`.

    Any error inside the function is raised as `BrokenVerifier`."""

    function: Verifier
    declared: Declared = field(default_factory=Declared)
    #: The inputs that were compared last, with copies of some rows.
    copied: dict[str, tuple[Any, int, Any]] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def convert(self) -> Callable[[Any], Any]:
        """Convert one array. Raises ValueError if the declared library is not installed."""
        return converter(self.declared)

    def ask(self, asked: Asked) -> None:
        """Nothing is done before the answer is read."""

    def read(self, asked: Asked) -> Iterator[Ints]:
        if isinstance(asked, SequencesAsked):
            yield from self._sequences(asked)
            return
        before = self._some_rows(asked) if asked.compared else {}
        yield from self._walks(asked) if self.declared.tree else self._calls(asked)
        for name, (array, every, rows) in before.items():  # tensors that share the memory are not read-only
            if not np.array_equal(array[::every], rows):
                raise BrokenVerifier(f"altered its input {name}")

    def _some_rows(self, asked: RowsAsked) -> dict[str, tuple[Any, int, Any]]:
        """Each input, and a copy of every n-th of its rows, from all calls; an array that was an input of the
        question before is not copied again."""
        found = {}
        for name in ("draft_tokens", "p", "q"):
            if (array := asked.arrays.get(name)) is not None:
                every = max(1, len(array) // COMPARED_ROWS)
                known = self.copied.get(name)
                found[name] = known if known and known[0] is array else (array, every, array[::every].copy())
        self.copied.clear()
        self.copied.update(found)
        return found

    def _calls(self, asked: RowsAsked) -> Iterator[Ints]:
        rng, rows = np.random.default_rng(asked.rng), asked.rows
        extras = {name: asked.arrays[name] for name in ("lengths", "uniforms") if name in asked.arrays}
        rows_of = _Gathered(asked) if asked.bank else _sliced(asked)
        for part in (slice(start, min(start + asked.size, rows)) for start in range(0, rows, asked.size)):
            drafted: Any = asked.arrays["draft_tokens"]
            arrays = (drafted[part], *rows_of(part))
            inputs = [None if array is None else self.convert(array) for array in arrays]
            handed: dict[str, Any] = {
                name: array[part] for name, array in extras.items() if array is not None
            }
            given: dict[str, Any] = {name: self.convert(array) for name, array in handed.items()}
            if asked.seeds is not None:
                given["seeds"] = handed["seeds"] = asked.seeds[part]
            shape = part.stop - part.start, asked.width
            try:
                with call_safely(asked.timeout):
                    output = self.function(*inputs, rng, **given)
                    # a copy, since the verifier may reuse its buffer
                    tokens = as_tokens(output, shape).astype(np.int64)
            except BrokenVerifier as error:
                # a later call has a generator that was used
                if error.details and not part.start:
                    code = call_as_code(self.function, self.declared, asked.rng, [*arrays], handed)
                    error.details = "\n".join([error.details, *[SHOWN_BY] * bool(code), *code])
                raise
            yield tokens

    def _walks(self, asked: RowsAsked) -> Iterator[Ints]:
        """One step over a tree after the other."""
        rng, p = np.random.default_rng(asked.rng), asked.arrays["p"]
        arrays = [asked.arrays[name] for name in ("parents", "draft_tokens", "p", "q")]
        for s in range(asked.rows):
            inputs = (self.convert(array[s]) for array in arrays)  # type: ignore[index]
            with call_safely(asked.timeout):
                output = self.function(*inputs, rng)
                path, token = as_path(output, arrays[0][s], p.shape[2], asked.first + s)  # type: ignore[index, union-attr]
            yield np.array([[*padded(path, asked.width - 1), token]])

    def _sequences(self, asked: SequencesAsked) -> Iterator[Ints]:
        case = asked.case
        for numbers in _requests_of_calls(asked, self.declared.batch):
            rng = np.random.default_rng([*asked.key, numbers[0]])
            prompts: Any = [list(case.prompt_of(number)) for number in numbers]
            one = self.declared.batch is None
            given = case.target, case.draft, prompts[0] if one else prompts
            with call_safely(asked.timeout, f"sequence {numbers[0]}: "):
                output = self.function(*given, case.max_new_tokens, case.eos, rng)
                texts = [output] if one else as_texts(output, len(numbers), numbers[0])
                tokens = [as_sequence(*text) for text in zip(texts, repeat(case), numbers, strict=False)]
            yield np.array([padded(text, asked.width) for text in tokens])


def _requests_of_calls(asked: SequencesAsked, batch: int | None) -> Iterator[range]:
    """The numbers of the requests of each call, which change: `batch`, 1, `batch`, 2, …, `batch`, `batch`."""
    first, end = asked.first, asked.first + asked.rows
    for call in count():
        size = 1 if batch is None else batch if call % 2 == 0 else 1 + call // 2 % batch
        if first >= end:
            return
        yield range(first, min(first + size, end))
        first += size


def _sliced(asked: RowsAsked) -> Callable[[slice], tuple[Any, Any]]:
    """A function that gives the p and q of some rows of `asked`."""

    def rows(part: slice) -> tuple[Any, Any]:
        p, q = (asked.arrays[name] for name in ("p", "q"))
        return (None if p is None else p[part]), (None if q is None else q[part])

    return rows


class _Gathered:
    """The same for rows of a bank; calls in succession that have the same rows are given the same arrays."""

    def __init__(self, asked: RowsAsked):
        self._places: Any = asked.arrays["places"]
        self._p, self._q = (asked.arrays[f"{name} {asked.bank}"] for name in ("p", "q"))
        self._last: Any = None
        self._rows: tuple[Any, Any] = (None, None)

    def __call__(self, part: slice) -> tuple[Any, Any]:
        places = self._places[part]
        if self._last is None or not np.array_equal(places, self._last):
            assert self._p is not None
            assert self._q is not None
            p, q = self._p.take(places, axis=0), self._q.take(places[:, :-1], axis=0)
            self._last, self._rows = places, (p, q)
        return self._rows


@contextmanager
def call_safely(timeout: float, where: str = "") -> Iterator[None]:
    """Raise `BrokenVerifier` for exceptions except Ctrl-C, and after `timeout` seconds.

    The result of a call is read inside too: it may be an object that does anything."""
    try:
        with _time_limit(timeout):
            yield
    except _Hung:
        raise BrokenVerifier(f"{where}hung: a call took longer than {timeout:g} s") from None
    except (BrokenVerifier, NotADraftPath, KeyboardInterrupt):
        raise
    except BaseException as error:  # a panic in Rust is not an Exception
        said = described(error)
        if isinstance(error, ValueError) and _WRITTEN.search(said):
            raise BrokenVerifier(f"{where}altered its input: {_where(error)}") from error
        raise BrokenVerifier(f"{where}raised {said}", _traceback(error, said)) from error


class _Hung(BaseException):
    """The time limit; not an Exception, so that a verifier's `except Exception` does not catch it."""


def _traceback(error: BaseException, said: str) -> str:
    """The user's last frames of `error`, which `said` describes, with the arrays of the last of them that is
    not in an installed package."""
    frames = [
        (frame, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if frame.f_code.co_filename not in (__file__, contextlib.__file__)
    ][-FRAMES:]
    installed = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    own = [
        i
        for i, (frame, _) in enumerate(frames)
        # compiled modules name files that are not there
        if not (file := frame.f_code.co_filename).startswith(installed) and linecache.getlines(file)
    ]
    shown, lines = own[-1] if own else len(frames) - 1, []
    for i, (frame, line) in enumerate(frames):
        file = frame.f_code.co_filename
        lines.append(f"{file}:{line}: in {frame.f_code.co_name}")
        if source := linecache.getline(file, line).strip():
            lines.append(f"    {source}")
        if i == shown:
            lines += [
                f"      {name}: {form}" for name, value in frame.f_locals.items() if (form := _form(value))
            ]
    return "\n".join([*lines, said]) if frames else ""


def _form(value: object) -> str:
    """dtype and shape of an array, the value of a number; empty for anything else."""
    if type(value) in (bool, int, float):
        return repr(value)
    if type(value).__module__.partition(".")[0] in ("numpy", "torch", "jax", "jaxlib"):
        shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
        return f"{dtype}{list(shape)}" if shape is not None and dtype is not None else ""
    return ""


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
