"""Synthetic acceptance of one nominal length: distributions, deviations, improvement, and the improvement of
a batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from figures._columns import groups, where
from figures._palette import MARKERS, curve, figure_style, heading

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLE = "Synthetic acceptance of engines, set to one mean length"
TABLES = ("synthetic_acceptance",)

#: Independent acceptances are what the others are compared with.
STYLES: dict[str, dict[str, Any]] = {
    "independent acceptances": {"color": "#bdbdbd", "linestyle": "-", "linewidth": 4.0, "marker": "_"},
    "llama.cpp, length": curve(0) | {"marker": MARKERS[0]},
    "vLLM, length": curve(1) | {"marker": MARKERS[1]},
    "vLLM, equal rates": curve(2) | {"marker": MARKERS[2]},
    "SGLang, match-expected": curve(3) | {"marker": MARKERS[3]},
    "SGLang, multinomial": curve(4) | {"marker": MARKERS[4]},
}


def draw(table: pa.Table) -> Figure:
    """The distribution of tokens per step, standard deviation against the nominal length, improvement against
    γ, and of a batch."""
    from matplotlib.figure import Figure

    fitted = table.slice(0, 1).to_pylist()[0]
    with figure_style():
        figure = Figure(figsize=(6.6, 5.9))
        axes = figure.subplots(2, 2)
        _draw_laws(axes[0, 0], where(table, quantity="probability"))
        for axis, quantity in (
            (axes[0, 1], "deviation"),
            (axes[1, 0], "improvement"),
            (axes[1, 1], "improvement of a batch"),
        ):
            for setting, line in groups(where(table, quantity=quantity), "setting").items():
                every = max(1, len(line["x"]) // 6)
                axis.plot(line["x"], line["value"], label=setting, markevery=every, **STYLES[setting])
        _draw_misses(axes[0, 1], where(table, quantity="mean"))
        axes[0, 0].set_title("probability of this many tokens")
        axes[0, 0].set_xlabel("tokens per step")
        axes[0, 1].set_title("standard deviation (thin: bias of the mean)")
        axes[0, 1].set_xlabel("tokens per step, as set")
        axes[1, 0].set_title(f"improvement, fitted at γ = {fitted['gamma']}")
        axes[1, 0].set_xlabel("drafted tokens γ")
        axes[1, 0].locator_params(axis="x", integer=True)
        axes[1, 0].set_ylim(1.0, None)
        axes[1, 1].set_title(f"improvement of a batch, {fitted['request']} tokens each")
        axes[1, 1].set_xlabel("requests in the batch")
        axes[1, 1].set_xscale("log", base=2)
        axes[1, 1].xaxis.set_major_formatter("{x:g}")
        handles, labels = axes[1, 1].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=-(-len(handles) // 2))
        set_to = f"set to {fitted['length']:g} tokens per step, c = {fitted['c']:g}"
        heading(figure, f"Synthetic acceptance of engines, {set_to}")
        return figure


def _draw_laws(axis: Axes, table: pa.Table) -> None:
    for setting, law in groups(table, "setting").items():
        axis.plot(law["x"], law["value"], **STYLES[setting])


def _draw_misses(axis: Axes, table: pa.Table) -> None:
    """How far the mean is from the nominal one, of settings that miss it."""
    for setting, line in groups(table, "setting").items():
        misses = [value - x for x, value in zip(line["x"], line["value"], strict=True)]
        if max(map(abs, misses)) > 1e-6:
            style = STYLES[setting] | {"linewidth": 0.7, "markersize": 2.5}
            axis.plot(line["x"], misses, markevery=max(1, len(misses) // 12), **style)
