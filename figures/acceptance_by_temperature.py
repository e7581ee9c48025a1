"""Acceptance against temperature, top-k and top-p, for the n-gram pair and for synthetic ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from figures._columns import groups, where
from figures._palette import GREY, figure_style, heading, points

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLE = "Acceptance of the same pairs at other temperatures, top-k and top-p"
TABLES = ("acceptance_by_temperature",)

STYLES = {"both": "-", "target": "--"}


def draw(table: pa.Table) -> Figure:
    """A panel for each way of reshaping, a colour and marker for each pair, with a band of two standard
    errors; dashed where the target alone is reshaped."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    with figure_style():
        figure = Figure(figsize=(6.6, 3.2))
        axes = figure.subplots(1, 3, sharey=True)
        for axis, quantity in zip(axes, ("temperature", "top-k", "top-p"), strict=True):
            panel = where(table, quantity=quantity)
            for sides in groups(panel, "sides"):
                _draw_lines(axis, where(panel, sides=sides), STYLES[sides])
            axis.set_xlabel(quantity)
        axes[0].axvline(1.0, color="black", linestyle=":", linewidth=1.0)
        axes[0].set_title("temperature")
        axes[1].set_xscale("log", base=2)
        axes[1].xaxis.set_major_formatter("{x:g}")
        axes[1].set_title("top-k, both sides")
        axes[1].set_xlabel("k")
        axes[2].set_title("top-p, both sides")
        axes[2].set_xlabel("mass kept")
        axes[0].set_ylabel("α, mean of Σ min(p, q) over contexts")
        axes[0].set_ylim(0.0, 1.0)
        handles = [
            *(Line2D([], [], **marks, label=pair) for pair, marks in _marks(table).items()),
            Line2D([], [], color=GREY, label="both sides"),
            Line2D([], [], color=GREY, linestyle="--", label="the target alone"),
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=-(-len(handles) // 2))
        heading(figure, TITLE)
        return figure


def _draw_lines(axis: Axes, table: pa.Table, style: str) -> None:
    for pair, marks in _marks(table).items():
        line = groups(table, "pair")[pair]
        low, high = (
            [alpha + sign * error for alpha, error in zip(line["alpha"], line["error"], strict=True)]
            for sign in (-2.0, 2.0)
        )
        axis.fill_between(line["value"], low, high, color=marks["color"], alpha=0.15, linewidth=0)
        every = max(1, len(line["value"]) // 6)
        axis.plot(line["value"], line["alpha"], **marks | {"linestyle": style}, markevery=every)


def _marks(table: pa.Table) -> dict[str, dict[str, Any]]:
    return {pair: points(number) for number, pair in enumerate(groups(table, "pair"))}
