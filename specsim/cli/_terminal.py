"""What commands print to the terminal, and the progress that they show there."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specsim.simulation._counting import Progress
    from specsim.traces import Trace


@contextmanager
def progress_bar(label: str, unit: str = " steps") -> Iterator[Progress | None]:
    """A progress bar on the terminal's error stream; none where that is not a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from tqdm import tqdm

    with tqdm(desc=label, unit=unit, unit_scale=True, leave=False) as bar:

        def update(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield update


def show(*renderables: Any) -> None:
    """Print on a terminal to its width; elsewhere whole lines, and tables to 120 columns."""
    from rich.console import Console
    from rich.table import Table

    off = not sys.stdout.isatty()
    console = Console(width=120 if off else None, highlight=False, markup=False)
    for one in renderables:
        console.print(one, soft_wrap=off and not isinstance(one, Table))


def print_result(result: Any, as_json: bool = False) -> None:
    """Print a result: its `to_dict` as JSON, or its `parts` as text."""
    if as_json:
        print(json.dumps(result.to_dict(), allow_nan=False))
    else:
        from specsim.core._tables import to_rich

        show(*to_rich(result.parts()))


def written(trace: Trace) -> str:
    """What was written, in numbers, and where."""
    size = f"{trace.num_rows:,} rows, {trace.num_bytes / 1e6:.1f} MB"
    return f"wrote {trace.num_steps:,} steps, {size} to {trace.path}"
