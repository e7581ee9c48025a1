"""Sampling time, acceptance and loop time against K: the shape of Chen et al., arXiv 2302.01318, Figure 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from figures._columns import groups, where
from figures._palette import COLORS, GREY
from specsim.core._plotting import figure_style, heading

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLE = "Independent acceptances fitted at K = 4, and the figure as it was read off (Chen et al., Figure 1)"
TABLES = ("chen_figure_1",)

#: A colour for each task; the third party's points do not say which XSum.
TASKS = {
    "XSum": GREY,
    "XSum, nucleus": COLORS[0],
    "XSum, greedy": COLORS[2],
    "HumanEval": COLORS[1],
    "all": GREY,
}


def draw(table: pa.Table) -> Figure:
    """A panel for each quantity: solid with the loop time as it was read off, dashed with the draft's own
    time; crosses are what a third party read off the printed figure, circles the shortest times.
    """
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    with figure_style():
        figure = Figure(figsize=(8.6, 3.7))
        axes = figure.subplots(1, 3)
        for axis, quantity in zip(axes, groups(table, "quantity"), strict=True):
            _draw_quantity(axis, where(table, quantity=quantity), ring=quantity.startswith("sampling"))
            axis.set_xlabel("drafted tokens K")
            axis.set_title(quantity)
        axes[1].set_ylim(0.0, 1.05)
        axes[2].set_ylim(0.0, 32.0)
        handles = [
            *(
                Line2D([], [], color=TASKS[task], label=task)
                for task in ("XSum, nucleus", "XSum, greedy", "HumanEval")
            ),
            Line2D([], [], color=GREY, label="loop time as read off"),
            Line2D([], [], color=GREY, linestyle="--", label="target and drafts alone"),
            Line2D([], [], color=GREY, linestyle="", marker="x", label="read off the published figure"),
            Line2D([], [], color=GREY, linestyle="", marker="o", fillstyle="none", label="shortest time"),
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=4)
        heading(figure, TITLE)
        return figure


def _draw_quantity(axis: Axes, table: pa.Table, ring: bool) -> None:
    steepest = max(filter(None, table["draft_ms"].to_pylist()))
    for draft_ms, part in groups(table, "draft_ms").items():
        for task, line in _by_task(part).items():
            color = TASKS[task]
            if draft_ms is None:
                axis.plot(line["k"], line["value"], "x", color=color, markersize=6)
                continue
            axis.plot(line["k"], line["value"], color=color, linestyle="-" if draft_ms == steepest else "--")
            if ring:
                best = int(np.argmin(line["value"]))
                axis.plot(
                    [line["k"][best]], [line["value"][best]], "o", color=color, fillstyle="none", markersize=8
                )


def _by_task(part: dict[str, list]) -> dict[str, dict[str, list]]:
    lines: dict[str, dict[str, list]] = {}
    for task, k, value in zip(part["task"], part["k"], part["value"], strict=True):
        line = lines.setdefault(task, {"k": [], "value": []})
        line["k"].append(k)
        line["value"].append(value)
    return lines
