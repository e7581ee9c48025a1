"""Speed and operations against α, for several γ: Leviathan et al., arXiv 2211.17192, Figure 4."""

from __future__ import annotations

from typing import TYPE_CHECKING

from figures._columns import groups
from figures._palette import GREY, figure_style, points

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.figure import Figure

TITLE = "Speed and operations against α, c = ĉ = 0 (Leviathan et al., Figure 4)"
TABLES = ("leviathan_figure_4",)


def draw(table: pa.Table) -> Figure:
    """A marker for each γ, speed solid, operations dotted; α in [.5, .9], up to 10, as printed."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    with figure_style():
        figure = Figure(figsize=(6.0, 4.2))
        axis = figure.subplots()
        for number, (gamma, line) in reversed(list(enumerate(groups(table, "gamma").items()))):
            marks = points(number) | {"markevery": max(1, len(line["alpha"]) // 8)}
            axis.plot(line["alpha"], line["speed"], **marks | {"linestyle": "-"}, label=f"γ = {gamma}")
            axis.plot(line["alpha"], line["operations"], **marks | {"linestyle": ":"})
        axis.axhline(1.0, color="black", linewidth=1.0)
        axis.text(0.51, 0.9, "target alone", va="top")
        axis.set_xlim(0.5, 0.9)
        axis.set_ylim(0.0, 10.0)
        axis.set_xlabel("acceptance probability α")
        axis.set_ylabel("relative to the target alone")
        axis.set_title(TITLE)
        kinds = [
            Line2D([], [], color=GREY, label="speed"),
            Line2D([], [], color=GREY, linestyle=":", label="operations"),
        ]
        axis.add_artist(axis.legend(loc="upper left"))
        axis.legend(handles=kinds, loc="upper left", bbox_to_anchor=(0.16, 1.0))
        return figure
