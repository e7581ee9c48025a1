"""Progress of long work: one bar, in terminals and notebooks, with an estimate of the time left.

Functions that take long have `progress`: None shows a bar in terminals and notebooks, True everywhere, False
nowhere; "lines" prints lines where there is no terminal, for logs; a function is called as
progress(done, total) instead. TQDM_DISABLE=1 silences all bars."""

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from functools import partial, wraps
from typing import Any, NamedTuple, TypeVar, cast

#: Called as progress(done, total).
Progress = Callable[[int, int], None]
#: What functions take as `progress`.
ShowProgress = bool | str | Progress | None
F = TypeVar("F", bound=Callable[..., Any])

#: Seconds of work before a bar is drawn.
DELAY = 0.5

_within: ContextVar[bool] = ContextVar("within other work", default=False)


class Work(NamedTuple):
    """Work under way: what to call with its progress, and whether it is within no other work."""

    report: Progress
    outermost: bool


def silent(done: int, total: int) -> None:
    """Show no progress."""


@contextmanager
def working(progress: ShowProgress, label: str, unit: str = " steps", now: bool = False) -> Iterator[Work]:
    """Show the progress of the work inside the `with`, `label` in front and counted in `unit`."""
    outermost = not _within.get()
    token = _within.set(True)
    drawn = outermost and not callable(progress) and (_watched() if progress in (None, "lines") else progress)
    tell = partial(tell_tenths, label, unit) if outermost and progress == "lines" else told(progress)
    try:
        with _bar(label, unit, now) if drawn else nullcontext(tell) as report:
            yield Work(report, outermost)
    finally:
        _within.reset(token)


def shows_progress(label: str, unit: str = " steps") -> Callable[[F], F]:
    """A decorator: the `progress` of the function is shown as `working` does; it reads it with `told`."""

    def decorate(function: F) -> F:
        @wraps(function)
        def called(*arguments: Any, progress: ShowProgress = None, **named: Any) -> Any:
            with working(progress, label, unit) as work:
                return function(*arguments, progress=work.report, **named)

        return cast(F, called)

    return decorate


def told(progress: ShowProgress) -> Progress:
    """What a function that `shows_progress` calls."""
    return progress if callable(progress) else silent


def tell_tenths(label: str, unit: str, done: int, total: int) -> None:
    """Print a line to standard error for each tenth that is done."""
    if done * 10 // total > (done - 1) * 10 // total:
        print(f"{label}: {done} of {total}{unit}", file=sys.stderr, flush=True)


@contextmanager
def _bar(label: str, unit: str, now: bool) -> Iterator[Progress]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of notebooks without widgets, which get text
        from tqdm.auto import tqdm

        named = {"desc": label, "unit": unit, "disable": bool(os.environ.get("TQDM_DISABLE"))}
        bar = tqdm(**named, unit_scale=True, leave=False, dynamic_ncols=True, delay=0.0 if now else DELAY)

    def report(done: int, total: int) -> None:
        bar.total = total
        bar.update(done - bar.n)

    with bar:
        yield report
        bar.total = bar.n  # work that ends early is no failure, which is red in notebooks


def _watched() -> bool:
    """Whether standard error is a terminal, or this a notebook."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(shell, "kernel") or (sys.stderr is not None and sys.stderr.isatty())
