"""Tables 1 to 5 of Leviathan et al., arXiv 2211.17192: printed numbers, and recomputed ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specsim.figures.printed import draw_differences
from specsim.plotting import figure_style

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.figure import Figure

TITLE = "Tables of Leviathan et al., recomputed"
TABLES = ("leviathan_tables",)


def draw(table: pa.Table) -> Figure:
    """A line for each number that follows from other printed ones."""
    from matplotlib.figure import Figure

    with figure_style():
        figure = Figure(figsize=(9.0, 7.4))
        axis = figure.subplots()
        draw_differences(axis, table)
        axis.set_title(TITLE)
        axis.legend(loc="lower right")
        return figure
