"""Tables 1 to 5 of Leviathan et al., arXiv 2211.17192: printed numbers, and recomputed ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from figures._printed import draw_differences

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.figure import Figure

TITLE = "Tables of Leviathan et al., recomputed"
TABLES = ("leviathan_tables",)


def draw(table: pa.Table) -> Figure:
    """A line for each number that follows from other printed ones."""
    return draw_differences(table, TITLE)
