"""Sampling time, acceptance and loop time against K: the shape of Chen et al., arXiv 2302.01318, Figure 1."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from figures._columns import groups, where
from figures._palette import GREY, figure_style, heading, points

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLE = "Independent acceptances fitted at K = 4 (Chen et al., Figure 1)"
TABLES = ("chen_figure_1",)

#: Colour and marker of each task; the third party's points do not say which XSum.
TASKS: dict[str, dict[str, Any]] = {
    "XSum": {"color": GREY, "marker": "s"},
    "XSum, nucleus": points(0),
    "XSum, greedy": points(2),
    "HumanEval": points(1),
    "all": {"color": GREY, "marker": "s"},
}
#: What is read off the published figure, and the shortest times.
READ: dict[str, Any] = {"linestyle": "none", "markersize": 6.5, "fillstyle": "none"}
RING: dict[str, Any] = {
    "color": GREY,
    "marker": "o",
    "markersize": 9.0,
    "fillstyle": "none",
    "linestyle": "none",
}


def draw(table: pa.Table) -> Figure:
    """A panel for each quantity: solid with the loop time as it was read off, dashed with the draft's own
    time; open markers are what a third party read off the printed figure, circles the shortest times."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    with figure_style():
        figure = Figure(figsize=(8.3, 3.4))
        axes = figure.subplots(1, 3)
        for axis, quantity in zip(axes, groups(table, "quantity"), strict=True):
            _draw_quantity(axis, where(table, quantity=quantity), ring=quantity.startswith("sampling"))
            axis.set_xlabel("drafted tokens K")
            axis.set_title(quantity)
        axes[1].set_ylim(0.0, 1.05)
        axes[2].set_ylim(0.0, 32.0)
        handles = [
            *(
                Line2D([], [], **TASKS[task], label=task)
                for task in ("XSum, nucleus", "XSum, greedy", "HumanEval")
            ),
            Line2D([], [], color=GREY, label="loop time as read off"),
            Line2D([], [], color=GREY, linestyle="--", label="target and drafts alone"),
            Line2D([], [], color=GREY, marker="s", **READ, label="read off the published figure"),
            Line2D([], [], **RING, label="shortest time"),
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=4)
        heading(figure, TITLE)
        return figure


def _draw_quantity(axis: Axes, table: pa.Table, ring: bool) -> None:
    steepest = max(filter(None, table["draft_ms"].to_pylist()))
    for draft_ms, part in groups(table, "draft_ms").items():
        for task, line in _by_task(part).items():
            marks = TASKS[task]
            if draft_ms is None:
                axis.plot(line["k"], line["value"], **marks | READ)
                continue
            style = {"linestyle": "-" if draft_ms == steepest else "--"}
            if task == "all":
                style["marker"] = "none"
            axis.plot(line["k"], line["value"], **marks | style)
            if ring:
                best = int(np.argmin(line["value"]))
                axis.plot([line["k"][best]], [line["value"][best]], **RING)


def _by_task(part: dict[str, list]) -> dict[str, dict[str, list]]:
    lines: dict[str, dict[str, list]] = {}
    for task, k, value in zip(part["task"], part["k"], part["value"], strict=True):
        line = lines.setdefault(task, {"k": [], "value": []})
        line["k"].append(k)
        line["value"].append(value)
    return lines
