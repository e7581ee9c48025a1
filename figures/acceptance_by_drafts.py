"""Acceptance against the number of drafts, for each rule, with the largest that any rule could reach."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.figure import Figure

TITLE = "Zipf pair, V = 1,000, Σ min(p, q) = 0.7"
TABLES = ("acceptance_by_drafts",)


def draw(table: pa.Table) -> Figure:
    """The picture of `specsim compare`: points simulated, thin lines closed forms, thick lines the bounds."""
    from specsim.simulation._comparison import Acceptance, drafts_figure

    return drafts_figure([Acceptance(**row) for row in table.to_pylist()], TITLE)
