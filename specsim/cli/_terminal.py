"""What commands print to the terminal, and the progress that they show there."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specsim.simulation._counting import Progress


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
    from rich.console import Console

    # off a terminal there is no width to fit, so let no cell be cut
    Console(width=None if sys.stdout.isatty() else 120, highlight=False, markup=False).print(
        *renderables, sep="\n"
    )


def number(value: float) -> str:
    """Four decimals; a dash where there is no value, as for the standard error of a single step."""
    return "–" if math.isnan(value) else f"{value:.4f}"
