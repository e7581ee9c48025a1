"""Printed numbers beside recomputed ones, as differences in units of the last digit printed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specsim.figures.palette import GREY, VERDICTS

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.axes import Axes

__all__ = ["draw_differences"]


def draw_differences(axis: Axes, table: pa.Table) -> None:
    """A line for each number that could be recomputed; inside the band it rounds to the printed one."""
    rows = [row for row in table.to_pylist() if row["units"] is not None]
    axis.axvspan(-0.5, 0.5, color="#dfe8f0", linewidth=0)
    for verdict, color in VERDICTS.items():
        places = [number for number, row in enumerate(rows) if row["verdict"] == verdict]
        axis.plot(
            [rows[place]["units"] for place in places], places, "o", color=color, label=verdict, clip_on=False
        )
    for number, row in enumerate(rows):
        axis.annotate(
            f"{row['published']}  |  {row['recomputed']:.4g}",
            (1.02, number),
            xycoords=("axes fraction", "data"),
            va="center",
            fontsize=7.5,
            color=VERDICTS[row["verdict"]],
        )
    axis.annotate(
        "printed  |  recomputed",
        (1.02, -1),
        xycoords=("axes fraction", "data"),
        va="center",
        fontsize=7.5,
        color=GREY,
    )
    axis.set_yticks(
        range(len(rows)), [f"{row['where'].split(',')[0]}: {row['quantity']}" for row in rows], fontsize=7.5
    )
    axis.set_ylim(len(rows) - 0.4, -0.6)
    axis.set_xlabel("recomputed - printed, in units of the last printed digit")
