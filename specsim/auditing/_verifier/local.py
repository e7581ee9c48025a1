"""Call a user's function, in the process that has it."""

import ast
import contextlib
import linecache
import os
import re
import signal
import sys
import sysconfig
import threading
import time
import traceback
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from specsim.adapters._contract import SHOWN_BY, BrokenVerifier, Declared, NotADraftPath, Verifier
from specsim.auditing._verifier import arrays
from specsim.auditing._verifier.origin import Origin, origin_of
from specsim.auditing._verifier.requests import Asked, RowsAsked, SequencesAsked
from specsim.core._json import described
from specsim.core._types import Ints

#: NumPy's message for a write to a read-only array; Cython's "buffer source array is read-only" is no write.
_WRITTEN = re.compile(r"(?<!buffer source )array is read-only|destination is read-only")

#: Rows of a question, at least, that are compared with copies, if it has as many.
COMPARED_ROWS = 512
#: Frames of a traceback that are kept.
FRAMES = 12


@dataclass(frozen=True)
class Local:
    """A user's function in this process, as a `Callee`; any error inside it is a `BrokenVerifier`."""

    function: Verifier
    declared: Declared = field(default_factory=Declared)
    #: Banks where the library is, and the latest rows of p and q: the next call may have the same.
    _there: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    _latest: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @cached_property
    def library(self) -> arrays.Library:
        """The declared library, on the declared device. Raises ValueError if it is not there."""
        return arrays.library_of(self.declared)

    @cached_property
    def device(self) -> arrays.Device:
        return self.library.device()

    @cached_property
    def origin(self) -> Origin:
        return origin_of(self.function)

    @cached_property
    def _lines(self) -> "Lines":
        return Lines(self.origin.file)

    def left(self) -> dict[int, set[int]]:
        return self._lines.left

    def ask(self, asked: Asked) -> None:
        """Nothing is done before the answer is read."""

    def read(self, asked: Asked) -> Iterator[Ints]:
        if isinstance(asked, SequencesAsked):
            yield from self._sequences(asked)
            return
        _ = self.library  # what is missing is no fault of a call
        if self.declared.tree:
            yield from self._walks(asked)
            return
        rng, rows = np.random.default_rng(asked.rng), asked.rows
        for start in range(0, rows, asked.size):
            yield self._call(asked, slice(start, min(start + asked.size, rows)), rng)

    def _call(self, asked: RowsAsked, part: slice, rng: np.random.Generator) -> Ints:
        given = asked.arrays.keys() & {"lengths", "uniforms"}
        handed: dict[str, Any] = {name: asked.arrays[name][part] for name in sorted(given)}
        shape = part.stop - part.start, asked.width
        with _handing(shape[0]):
            inputs = {"draft_tokens": self.library.convert(asked.arrays["draft_tokens"][part])}
            inputs |= {name: self._rows(asked, name, part) for name in ("p", "q")}
            extras: dict[str, Any] = {name: self.library.convert(array) for name, array in handed.items()}
        if asked.seeds is not None:
            extras["seeds"] = handed["seeds"] = asked.seeds[part]
        every = max(1, asked.rows // COMPARED_ROWS) if asked.compared else None
        try:
            with self._unaltered(inputs, every), call_safely(asked.timeout):
                with self._lines.watching((shape, getattr(inputs["p"], "shape", None))):
                    output = self.function(*inputs.values(), rng, **extras)
                # a copy, since the verifier may reuse its buffer
                tokens = arrays.as_tokens(output, shape).astype(np.int64)
        except BrokenVerifier as error:
            # a later call has a generator that was used
            if error.details and not part.start:
                shown = _arrays_of(asked, part)
                code = call_as_code(self.function, self.declared, asked.rng, shown, handed) if shown else []
                error.details = "\n".join([error.details, *[SHOWN_BY] * bool(code), *code])
            raise
        return tokens

    def _rows(self, asked: RowsAsked, name: str, part: slice) -> Any:
        """The p or q of a call, as an array of the library; None if it is withheld."""
        name, index = _where_rows_are(asked, name, part)
        if (array := asked.arrays[name]) is None:
            return None
        if index is part:
            return self.library.convert(array[part])
        found = self._latest.pop(name[0], None)  # of large calls only one has room
        if found is None or found[0] is not array or not np.array_equal(found[1], index):
            found = None
            if self._there.get(name, (None,))[0] is not array:  # else the device has had it since then
                self._there[name] = array, self.library.bank(array)
            found = array, index, self.library.take(self._there[name][1], index)
        self._latest[name[0]] = found
        return found[2]

    @contextmanager
    def _unaltered(self, inputs: dict[str, Any], every: int | None) -> Iterator[None]:
        """Raise `BrokenVerifier` if a call alters its inputs; every n-th row is compared."""
        copies = {}
        if every is not None and self.library.writable:
            with _handing(len(inputs["draft_tokens"])):
                copies = {
                    name: self.library.copy(array[::every])
                    for name, array in inputs.items()
                    if array is not None
                }
        yield
        for name, before in copies.items():
            try:  # by a comparison where they are
                same = bool((inputs[name][::every] == before).all())
            except Exception:  # it has another shape
                same = False
            if not same:
                raise BrokenVerifier(f"altered its input {name}")

    def _walks(self, asked: RowsAsked) -> Iterator[Ints]:
        rng, p = np.random.default_rng(asked.rng), asked.arrays["p"]
        given = {name: asked.arrays[name] for name in ("parents", "draft_tokens", "p", "q")}
        every = max(1, asked.rows // COMPARED_ROWS)
        for s in range(asked.rows):
            with _handing(1):
                inputs = {name: self.library.convert(array[s]) for name, array in given.items()}
            compared = asked.compared and s % every == 0
            with self._unaltered(inputs, 1 if compared else None), call_safely(asked.timeout):
                with self._lines.watching(given["p"].shape):
                    output = self.function(*inputs.values(), rng)
                path, token = arrays.as_path(output, given["parents"][s], p.shape[2], asked.first + s)
            yield np.array([[*arrays.padded(path, asked.width - 1), token]])

    def _sequences(self, asked: SequencesAsked) -> Iterator[Ints]:
        case = asked.case
        for numbers in _requests_of_calls(asked, self.declared.batch):
            rng = np.random.default_rng([*asked.key, numbers[0]])
            prompts: Any = [list(case.prompt_of(number)) for number in numbers]
            one = self.declared.batch is None
            given = case.target, case.draft, prompts[0] if one else prompts
            with call_safely(asked.timeout, f"sequence {numbers[0]}: "):
                with self._lines.watching((case.name, len(numbers))):
                    output = self.function(*given, case.max_new_tokens, case.eos, rng)
                texts = [output] if one else arrays.as_texts(output, len(numbers), numbers[0])
                tokens = [arrays.as_sequence(text, case, n) for text, n in zip(texts, numbers, strict=True)]
            yield np.array([arrays.padded(text, asked.width) for text in tokens])


def _requests_of_calls(asked: SequencesAsked, batch: int | None) -> Iterator[range]:
    """The numbers of the requests of each call, which change: `batch`, 1, `batch`, 2, …, `batch`, `batch`."""
    first, end, call = asked.first, asked.first + asked.rows, 0
    while first < end:
        size = 1 if batch is None else batch if call % 2 == 0 else 1 + call // 2 % batch
        yield range(first, min(first + size, end))
        first, call = first + size, call + 1


def _where_rows_are(asked: RowsAsked, name: str, part: slice) -> tuple[str, Any]:
    """Where some rows of p or q are: the name of an array, and `part`, or, of a bank, the places in it."""
    if (bank := f"{name} {asked.bank}") not in asked.arrays:
        return name, part
    places = asked.arrays["places"]
    return bank, places[part] if name == "p" else places[part, :-1]


def _arrays_of(asked: RowsAsked, part: slice) -> list[Any]:
    """The draft_tokens, p and q of some rows, as NumPy arrays; none if they are too large to be shown."""
    drafted = asked.arrays["draft_tokens"]
    rows = [(asked.arrays[name], index) for name, index in (_where_rows_are(asked, x, part) for x in "pq")]
    p = rows[0][0]
    if p is None or len(drafted[part]) * asked.width * p.shape[-1] > MOST_NUMBERS:
        return []
    return [drafted[part], *(None if array is None else array[index] for array, index in rows)]


@contextmanager
def _handing(rows: int) -> Iterator[None]:
    """Raise `BrokenVerifier` if the library has no room for the rows of a call."""
    try:
        yield
    except Exception as error:  # each library has one of its own
        said = " ".join(described(error).split())
        raise BrokenVerifier(
            f"could not be handed a call of {rows:,} rows ({said}); declare a smaller batch, or "
            "another device"
        ) from error


@contextmanager
def call_safely(timeout: float, where: str = "") -> Iterator[None]:
    """Raise `BrokenVerifier` for exceptions except Ctrl-C, and after `timeout` s; read the result inside."""
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
            frame = traceback.extract_tb(error.__traceback__)[-1]
            line = f"{frame.line} ({os.path.basename(frame.filename)}, line {frame.lineno})"
            raise BrokenVerifier(f"{where}altered its input: {line}") from error
        raise BrokenVerifier(f"{where}raised {said}", _traceback(error, said)) from error


class _Hung(BaseException):
    """The time limit; not an Exception, so that a verifier's `except Exception` does not catch it."""


def _traceback(error: BaseException, said: str) -> str:
    """The user's last frames of `error`, with the arrays of the last that is not in an installed package."""
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
        if not (file := frame.f_code.co_filename).startswith(installed)
        and linecache.getlines(file, frame.f_globals)
    ]
    shown, lines = own[-1] if own else len(frames) - 1, []
    for i, (frame, line) in enumerate(frames):
        file = frame.f_code.co_filename
        lines.append(f"{file}:{line}: in {frame.f_code.co_name}")
        if source := linecache.getline(file, line, frame.f_globals).strip():
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
    if type(value).__module__.partition(".")[0] in ("numpy", "torch", "jax", "jaxlib", "cupy"):
        shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
        return f"{dtype}{list(shape)}" if shape is not None and dtype is not None else ""
    return ""


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """Stop Python code that takes longer, in the main thread only: a child's parent has a time-out too."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def give_up(*_: Any) -> None:
        raise _Hung

    before, started = signal.signal(signal.SIGALRM, give_up), time.monotonic()
    left, every = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if left:  # an alarm of the caller's, as of a test runner, goes on
            signal.setitimer(signal.ITIMER_REAL, max(left - (time.monotonic() - started), 1e-6), every)


# A call of a user's function as Python code that can be pasted, where its arrays are small.

#: The most numbers in the arrays of a call that is shown.
MOST_NUMBERS = 100
#: An array of each library, from the code of a NumPy array.
_OF_LIBRARY = {"numpy": "{}", "torch": "torch.from_numpy({})", "jax": "jax.numpy.asarray({})"}


def call_as_code(
    function: Any, declared: Declared, seed: tuple[int, ...], inputs: list[Any], extras: dict[str, Any]
) -> list[str]:
    """The lines of a call with NumPy arrays `inputs`; none if it is too large, on a device, or bfloat16."""
    name = getattr(function, "__qualname__", "")
    small = [value for value in (*inputs, *extras.values()) if isinstance(value, np.ndarray)]
    numbers = sum(array.size for array in small)
    named = name.replace(".", "_").isidentifier() and "<" not in name
    here = named and declared.device == "cpu"
    if not here or numbers > MOST_NUMBERS or any(array.dtype.kind not in "iuf" for array in small):
        return []
    library = _OF_LIBRARY[declared.arrays]
    shown = [_value(value, library) for value in inputs] + [f"np.random.default_rng({list(seed)})"]
    shown += [f"{key}={_value(value, library)}" for key, value in extras.items()]
    lines = ["import numpy as np"]
    if declared.arrays != "numpy":
        lines.append(f"import {library.partition('.')[0]}" + ".numpy" * (declared.arrays == "jax"))
    if function.__module__ != "__main__":
        lines.append(f"from {function.__module__} import {name.partition('.')[0]}")
    return [*lines, f"{name}(", *(f"    {one}," for one in shown), ")"]


def _value(value: Any, library: str) -> str:
    if not isinstance(value, np.ndarray):
        return repr(value)
    numbers = np.array2string(value, separator=", ", floatmode="unique", threshold=MOST_NUMBERS + 1)
    return library.format(
        f"np.array({' '.join(numbers.split()).replace(' ,', ',')}, dtype={value.dtype.name!r})"
    )


#: Lines that are watched: in the calls of one shape, and in all.
MOST_OF_A_SHAPE, MOST_LINES = 10**5, 10**7
#: Statements that no event tells of, or that right code need not run.
_SILENT = ast.Pass, ast.Global, ast.Nonlocal, ast.Raise, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef
#: The parts of a compound statement.
_PARTS = "body", "orelse", "finalbody", "handlers", "cases"


class Lines:
    """The statements of the functions of a Python `file` that the watched calls entered: `left` has, by the
    first line of each function, the first lines of those that did not run. No audit has tested these."""

    def __init__(self, file: str):
        self._file = file
        try:
            self._functions = _functions_of(Path(file).read_text(encoding="utf-8"))
        except (OSError, ValueError, SyntaxError):  # a notebook, or no Python
            self._functions = {}
        self.left: dict[int, set[int]] = {}
        self._watched: dict[Hashable, int] = {}
        self._shape: Hashable = None
        self._all = 0

    @contextmanager
    def watching(self, shape: Hashable) -> Iterator[None]:
        """Watch a call of this shape, unless enough of its lines were watched, or another tracer runs."""
        self._shape = shape
        enough = self._watched.get(shape, 0) >= MOST_OF_A_SHAPE or self._all >= MOST_LINES
        if enough or not self._functions or sys.gettrace() is not None:
            yield
            return
        sys.settrace(self._entered)
        try:
            yield
        finally:
            sys.settrace(None)

    def _entered(self, frame: Any, event: str, _: Any) -> Callable[..., Any] | None:
        code = frame.f_code
        if code.co_filename != self._file or (lines := self._functions.get(code.co_firstlineno)) is None:
            return None
        if not (left := self.left.setdefault(code.co_firstlineno, set(lines.values()))):
            return None

        def line(frame: Any, event: str, _: Any) -> Callable[..., Any] | None:
            self._all += 1
            self._watched[self._shape] = count = self._watched.get(self._shape, 0) + 1
            left.discard(lines.get(frame.f_lineno, 0))
            return line if left and count < MOST_OF_A_SHAPE else None

        return line


@lru_cache(8)
def _functions_of(source: str) -> dict[int, dict[int, int]]:
    """By the first line of each function: the line of each of its statements, by the lines that it has."""
    found = {}
    for one in ast.walk(ast.parse(source)):
        if isinstance(one, ast.FunctionDef):
            first = min([one.lineno, *(decorator.lineno for decorator in one.decorator_list)])
            found[first] = dict(_statements(one.body))
    return found


def _statements(body: Sequence[Any]) -> Iterator[tuple[int, int]]:
    """(line, line where its statement begins); of a compound statement, the lines of its head."""
    for one in body:
        parts = [part for part in (getattr(one, name, []) for name in _PARTS) if part]
        text = isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant)
        if isinstance(one, _SILENT) or text:
            continue
        if isinstance(one, ast.stmt) and not isinstance(one, ast.Try):
            inner = getattr(parts[0][0], "lineno", one.lineno + 1) if parts else (one.end_lineno or 0) + 1
            yield from ((line, one.lineno) for line in range(one.lineno, max(inner, one.lineno + 1)))
        for part in parts:
            yield from _statements(part)
