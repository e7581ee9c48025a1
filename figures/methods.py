"""Speed of the drafting systems, for one sequence and for a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from figures._palette import COLORS, figure_style

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.figure import Figure

TITLE = "Speed of drafting systems on the n-gram pair"
TABLES = ("methods",)


def draw(table: pa.Table) -> Figure:
    """Two bars for each system, tokens per step divided by cost, the fastest for one sequence on top; open
    bars are of systems with a lossy rule."""
    from matplotlib.figure import Figure

    rows = sorted(table.to_pylist(), key=lambda row: row["speed_1"])
    batches = [name.removeprefix("speed_") for name in table.column_names if name.startswith("speed_")]
    with figure_style():
        figure = Figure(figsize=(6.3, 0.32 * len(rows) + 1.1))
        ax = figure.subplots()
        for k, batch in enumerate(batches):
            places = [i + 0.2 - 0.4 * k for i in range(len(rows))]
            lossless = [row["tv"] == 0 for row in rows]
            bars = ax.barh(places, [row[f"speed_{batch}"] for row in rows], 0.38, color=COLORS[k])
            bars[0].set_label(f"batch {batch}")
            for bar, full in zip(bars, lossless, strict=True):
                bar.set(fill=full, edgecolor=COLORS[k])
        ax.axvline(1.0, color="0.4", linewidth=0.8, zorder=0)
        ax.set_yticks(range(len(rows)), [row["method"] for row in rows])
        ax.set(xlabel="speed: tokens per step / cost of a step", title=TITLE)
        ax.legend(loc="lower right")
    return figure
