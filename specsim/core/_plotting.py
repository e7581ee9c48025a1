"""The style of specsim's figures, and how they are saved."""

import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from specsim.core._files import atomic_write
from specsim.core._types import Floats, Ints

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
    from matplotlib.figure import Figure as Figure
else:  # the names are for annotations alone: importing Matplotlib takes long
    Axes = Figure = Any

#: Colours of series on light and on dark pages, from the palette of Okabe and Ito, "Color Universal Design"
#: (2008, https://jfly.uni-koeln.de/color/), which is made for deuteranopia and protanopia too.
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00")
DARK_COLORS = ("#56b4e9", "#d55e00", "#009e73", "#cc79a7", "#f0e442")
#: The dashes and the marker of each colour, so that no series is known by its colour alone.
LINES: tuple[Any, ...] = ("-", "--", ":", "-.", (0, (7, 1.5, 1, 1.5, 1, 1.5)))
MARKERS = ("o", "s", "^", "D", "v")
#: Letters of a heading in an inch, at its font size.
LETTERS_PER_INCH = 11.5


def curve(number: int) -> dict[str, Any]:
    """Colour and dashes of the curve of series `number` < 5."""
    return {"color": COLORS[number], "linestyle": LINES[number]}


def points(number: int) -> dict[str, Any]:
    """Colour and marker of the points of series `number` < 5, without a line."""
    return {"color": COLORS[number], "marker": MARKERS[number], "linestyle": "none"}


@contextmanager
def figure_style() -> Iterator[None]:
    import matplotlib.style

    with matplotlib.style.context("specsim.style"):
        yield


def axes_or_new(ax: Axes | None) -> Axes:
    """`ax`, or the axes of a new figure in specsim's style, which Jupyter shows as pyplot's figures."""
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    with figure_style():
        return plt.subplots()[1]


def lengths_plot(ax: Axes, lengths: Ints, laws: Mapping[str, Floats]) -> Axes:
    """Bars for the measured shares of each number of emitted tokens, markers for `laws`, {name: [γ+1]}."""
    emitted = np.arange(1, len(lengths) + 1)
    measured = lengths / lengths.sum()
    ax.bar(emitted, measured, color="0.85", label=f"measured, mean {measured @ emitted:.3f}")
    for marker, (name, law) in zip(MARKERS, laws.items(), strict=False):
        ax.plot(emitted, law, marker, label=f"{name}, mean {law @ emitted:.3f}")
    ax.set(xticks=emitted, xlabel="tokens emitted in a step", ylabel="probability")
    # room for the legend
    ax.set_ylim(0.0, 1.45 * max(float(law.max()) for law in (measured, *laws.values())))
    ax.legend(loc="upper right")
    return ax


def heading(figure: Figure, text: str) -> None:
    """Write `text` as the title of `figure`, in as many lines as its width requires."""
    letters = int(LETTERS_PER_INCH * figure.get_figwidth())
    figure.suptitle(textwrap.fill(text, letters), x=0.01, ha="left", fontsize=9.5, fontweight="bold")


def save_figure(figure: Figure, path: Path) -> None:
    """Write `figure` to `path` (.png, .svg or .pdf) atomically, without a date: it is reproducible."""
    kind = path.suffix.lstrip(".")
    if kind not in ("png", "svg", "pdf"):
        raise ValueError(f"{path}: not a kind of figure; name it .png, .svg or .pdf")
    metadata = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[kind]
    with atomic_write(path) as temporary, figure_style():
        figure.savefig(temporary, format=kind, metadata=metadata)
