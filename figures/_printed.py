"""Published values beside recomputed ones, as differences in units of the last published digit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from figures._palette import VERDICTS
from specsim.core._plotting import figure_style

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_differences"]


def draw_differences(table: pa.Table, title: str) -> Figure:
    """A line for each value that could be recomputed; inside the band it rounds to the published one."""
    from matplotlib.figure import Figure

    rows = [row for row in table.to_pylist() if row["units"] is not None]
    with figure_style():
        figure = Figure(figsize=(9.0, 1.2 + 0.21 * len(rows)))
        axis = figure.subplots()
        _draw(axis, rows)
        axis.set_title(title)
        axis.legend(loc="center left", frameon=True, framealpha=1.0)
        return figure


def _draw(axis: Axes, rows: list[dict[str, Any]]) -> None:
    axis.axvspan(-0.5, 0.5, color="#dfe8f0", linewidth=0)
    for verdict, color in VERDICTS.items():
        places = [number for number, row in enumerate(rows) if row["verdict"] == verdict]
        axis.plot(
            [rows[place]["units"] for place in places], places, "o", color=color, label=verdict, clip_on=False
        )
    axis.set_yticks(
        range(len(rows)), [f"{row['where'].split(',')[0]}: {row['quantity']}" for row in rows], fontsize=7.5
    )
    beside = axis.secondary_yaxis("right")
    beside.set_yticks(
        range(len(rows)), [f"{row['published']}  |  {row['recomputed']:.4g}" for row in rows], fontsize=7.5
    )
    beside.set_ylabel("published  |  recomputed", fontsize=7.5)
    beside.tick_params(length=0)
    beside.spines[:].set_visible(False)
    for label, row in zip(beside.get_yticklabels(), rows, strict=True):
        label.set_color(VERDICTS[row["verdict"]])
    axis.set_ylim(len(rows) - 0.4, -0.6)
    axis.set_xlabel("recomputed - published, in units of the last published digit")
