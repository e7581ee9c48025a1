"""Table 1 of Chen et al., arXiv 2302.01318: published and recomputed values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from figures._columns import where
from figures._printed import draw_differences

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.figure import Figure

TITLE = "Table 1 of Chen et al., recomputed"
TABLES = ("published",)


def draw(table: pa.Table) -> Figure:
    """A line for each value that follows from other published ones."""
    return draw_differences(where(table, paper="2302.01318"), TITLE)
