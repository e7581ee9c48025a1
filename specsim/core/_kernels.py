"""The one place where functions are handed to numba.

``@kernel`` marks a function that numba compiles when it is first called, so that importing a module, and
listing the rules, costs nothing. A kernel may call other kernels. Kernels release the GIL, because the
engine runs them on a pool of threads; division follows NumPy, so that a kernel never raises in the middle
of a chunk. ``fastmath`` is only for summaries: it lets the compiler reorder additions, and a decision (accept
or reject) must not depend on that.

Compiled code is kept on disk in a folder named after the package's own sources: numba notices when a kernel
changes, but not when a kernel that it calls does. So kernels written elsewhere, in a notebook say, and those made
of them are compiled in every session.

`interpreted()` runs kernels as plain Python for a while; set ``NUMBA_DISABLE_JIT=1`` to do so throughout, for a
debugger or for coverage.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, cached_property, update_wrapper
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["Kernel", "available_threads", "interpreted", "kernel", "sources_digest", "summary_kernel"]

PACKAGE = Path(__file__).parents[1]

_interpreting: ContextVar[bool] = ContextVar("interpreting", default=False)


class Kernel:
    """A function compiled by numba at its first call; `plain` is the same function in Python."""

    def __init__(self, function: Callable[..., Any], *, fastmath: bool):
        self.plain = function
        self.fastmath = fastmath
        update_wrapper(self, function)

    def __call__(self, *arguments: Any) -> Any:
        return self.plain(*arguments) if _interpreting.get() else self.compiled(*arguments)

    def __reduce__(self) -> tuple[Any, ...]:
        """By name and closure: numba's disk cache tells closures over kernels apart by what they pickle to."""
        cells = tuple(cell.cell_contents for cell in self.plain.__closure__ or ())
        return _kernel_named, (self.plain.__module__, self.plain.__qualname__, *cells)

    @cached_property
    def compiled(self) -> Callable[..., Any]:
        import numba

        _teach_numba_about_kernels()
        with _cache_directory():
            return numba.njit(
                self.plain, nogil=True, cache=self.kept, error_model="numpy", fastmath=self.fastmath
            )

    @property
    def kept(self) -> bool:
        """Whether the package's sources say all about this kernel, so that it can be found again on disk."""
        inner = [cell.cell_contents for cell in self.plain.__closure__ or ()]
        return self.plain.__module__.partition(".")[0] == PACKAGE.name and all(
            part.kept for part in inner if isinstance(part, Kernel)
        )


@contextmanager
def interpreted() -> Iterator[None]:
    """Within this, kernels and the kernels that they call run as plain Python, on the same numbers.

    That is a kernel's plain twin: for one step it is quicker than compiling, and it shows what compiling did.
    """
    token = _interpreting.set(True)
    try:
        with np.errstate(all="ignore"):  # as in compiled code
            yield
    finally:
        _interpreting.reset(token)


def _kernel_named(module: str, name: str, *closure: Any) -> Kernel:
    if closure:
        raise TypeError(f"{module}.{name}: a kernel made by a function cannot be unpickled")
    found: Kernel = getattr(import_module(module), name)
    return found


def kernel(function: Callable[..., Any]) -> Kernel:
    """Compile `function` at its first call, with strict floating-point arithmetic."""
    return Kernel(function, fastmath=False)


def summary_kernel(function: Callable[..., Any]) -> Kernel:
    """Compile `function` at its first call, letting the compiler reorder sums."""
    return Kernel(function, fastmath=True)


def available_threads(threads: int | None = None) -> int:
    """`threads`, or as many as this process has cores. Raises ValueError below 1, TypeError for no integer."""
    if threads is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if isinstance(threads, bool) or not hasattr(threads, "__index__"):
        raise TypeError(f"threads: expected an int, got {type(threads).__name__}")
    if threads < 1:
        raise ValueError(f"threads: {threads} is not at least 1")
    return int(threads)


@cache
def _teach_numba_about_kernels() -> None:
    """Let a kernel call another: to numba, a `Kernel` is the compiled function behind it."""
    from numba.core import types
    from numba.extending import typeof_impl

    @typeof_impl.register(Kernel)
    def typeof_kernel(value: Kernel, context: Any) -> Any:
        return types.Dispatcher(value.compiled)


@contextmanager
def _cache_directory() -> Iterator[None]:
    """Point numba's cache at this version of the sources while one kernel is being declared."""
    from numba import config

    chosen = config.CACHE_DIR  # type: ignore[attr-defined]  # set at run time
    root = Path(chosen) if chosen else PACKAGE / "__pycache__"
    if not chosen and not os.access(PACKAGE, os.W_OK):
        root = Path.home() / ".cache" / "specsim"
    config.CACHE_DIR = str(root / f"kernels-{sources_digest()}")  # type: ignore[attr-defined]
    try:
        yield
    finally:
        config.CACHE_DIR = chosen  # type: ignore[attr-defined]


@cache
def sources_digest() -> str:
    """Of every Python file of the package, in 16 hexadecimal digits."""
    digest = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
