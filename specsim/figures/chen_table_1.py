"""Table 1 of Chen et al., arXiv 2302.01318: printed numbers, and recomputed ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specsim.figures.printed import draw_differences
from specsim.plotting import figure_style

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.figure import Figure

TITLE = "Table 1 of Chen et al., recomputed"
TABLES = ("chen_table_1",)


def draw(table: pa.Table) -> Figure:
    """A line for each number that follows from other printed ones."""
    from matplotlib.figure import Figure

    with figure_style():
        figure = Figure(figsize=(9.0, 2.2))
        axis = figure.subplots()
        draw_differences(axis, table)
        axis.set_title(TITLE)
        axis.legend(loc="lower left")
        return figure
