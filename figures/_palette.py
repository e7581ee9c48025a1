"""The style of the figures, which is specsim's own, and colours that mean the same in every figure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specsim.core._plotting import (
    COLORS,
    DARK_COLORS,
    MARKERS,
    curve,
    figure_style,
    heading,
    points,
    save_figure,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "BAND", "COLORS", "DARK_COLORS", "GREY", "MARKERS", "VERDICTS",
    "curve", "figure_style", "heading", "mark", "points", "save_figure",
]  # fmt: skip

GREY = "#5a5a5a"
#: The background of values that agree.
BAND = "#dfe8f0"

#: The verdicts on published values: colour and marker.
VERDICTS = {
    "reproduced": (COLORS[0], MARKERS[0]),
    "within rounding": (COLORS[4], MARKERS[1]),
    "not reproducible": (COLORS[1], MARKERS[3]),
}


def mark(figure: Figure) -> None:
    """Write into a corner of a figure that its tables simulate less."""
    figure.text(0.995, 0.995, "few steps", fontsize=7, color=GREY, ha="right", va="top")
