"""Published values beside recomputed ones, as differences in units of the last published digit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from figures._palette import BAND, VERDICTS, figure_style, heading

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw_differences(table: pa.Table, title: str) -> Figure:
    """A line for each value that could be recomputed; inside the band it rounds to the published one."""
    from matplotlib.figure import Figure

    rows = [row for row in table.to_pylist() if row["units"] is not None]
    with figure_style():
        figure = Figure(figsize=(9.0, 1.6 + 0.21 * len(rows)))
        axis = figure.subplots()
        _draw(axis, rows)
        heading(figure, title)
        axis.set_title("published  |  recomputed", loc="right", fontsize=7.5)
        figure.legend(loc="outside lower center", ncols=len(VERDICTS))
        return figure


def _draw(axis: Axes, rows: list[dict[str, Any]]) -> None:
    axis.axvspan(-0.5, 0.5, color=BAND, linewidth=0)
    for verdict, (color, marker) in VERDICTS.items():
        places = [number for number, row in enumerate(rows) if row["verdict"] == verdict]
        axis.plot(
            [rows[place]["units"] for place in places],
            places,
            marker,
            color=color,
            label=verdict,
        )
    axis.set_yticks(
        range(len(rows)), [f"{row['where'].split(',')[0]}: {row['quantity']}" for row in rows], fontsize=7.5
    )
    for number, row in enumerate(rows):
        text = f"{row['published']}  |  {row['recomputed']:.4g}"
        axis.annotate(text, (1.02, number), xycoords=("axes fraction", "data"), va="center", fontsize=7.5)
    axis.set_ylim(len(rows) - 0.4, -0.6)
    axis.set_xlabel("recomputed - published, in units of the last published digit")
