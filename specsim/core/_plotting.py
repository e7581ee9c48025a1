"""The style of specsim's figures, and how they are saved."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from specsim.core._files import atomic_write

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Letters of a heading in an inch, at its font size.
LETTERS_PER_INCH = 10.5
STYLE = Path(__file__).with_name("specsim.mplstyle")


@contextmanager
def figure_style() -> Iterator[None]:
    """Draw in specsim's style inside the `with`."""
    import matplotlib.style

    with matplotlib.style.context(STYLE):
        yield


def heading(figure: Figure, text: str) -> None:
    """Write `text` as the title of `figure`, in as many lines as its width requires."""
    letters = int(LETTERS_PER_INCH * figure.get_figwidth())
    figure.suptitle(textwrap.fill(text, letters), x=0.01, ha="left", fontsize=11, fontweight="bold")


def save_figure(figure: Figure, path: Path) -> None:
    """Write `figure` to `path` (.png, .svg or .pdf) atomically. Raises ValueError for another ending.

    The file has no date in it, so that the same figure gives the same file.
    """
    kind = path.suffix.lstrip(".")
    if kind not in ("png", "svg", "pdf"):
        raise ValueError(f"{path}: a figure is saved as .png, .svg or .pdf")
    metadata = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[kind]
    with atomic_write(path) as temporary, figure_style():
        figure.savefig(temporary, format=kind, metadata=metadata)
