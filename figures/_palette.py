"""The style of the figures, which is specsim's own, and colours that mean the same in every figure."""

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

__all__ = [
    "BAND", "COLORS", "DARK_COLORS", "GREY", "MARKERS", "VERDICTS",
    "curve", "figure_style", "heading", "points", "save_figure",
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
