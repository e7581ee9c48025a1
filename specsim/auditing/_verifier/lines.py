"""Which statements of a user's function ran. What no call ran, no audit has tested."""

import ast
import sys
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

#: Lines that are watched: in the calls of one shape, and in all.
MOST_OF_A_SHAPE, MOST_LINES = 10**5, 10**7
#: Statements that no event tells of, or that right code need not run.
_SILENT = ast.Pass, ast.Global, ast.Nonlocal, ast.Raise, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef
#: The parts of a compound statement.
_PARTS = "body", "orelse", "finalbody", "handlers", "cases"


class Lines:
    """The statements of the functions of a Python `file` that the watched calls entered: `left` has, by the
    first line of each function, the first lines of those that did not run."""

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
        left = self.left.setdefault(code.co_firstlineno, set(lines.values()))
        if not left:
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
