"""Synthetic acceptance of one nominal length: laws, deviations, improvement, and the improvement of a
batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from figures._columns import groups, where
from figures._palette import COLORS
from specsim.core._plotting import figure_style, heading

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLE = "Synthetic acceptance at one nominal length, as engines draw it"
TABLES = ("synthetic_acceptance",)

#: Independent acceptances are what the others are compared with.
STYLES: dict[str, dict[str, Any]] = {
    "independent acceptances": {"color": "black", "linestyle": ":", "linewidth": 2.6},
    "llama.cpp, length": {"color": COLORS[0]},
    "vLLM, length": {"color": COLORS[1]},
    "vLLM, equal rates": {"color": COLORS[2]},
    "SGLang, match-expected": {"color": COLORS[3], "linestyle": "--"},
    "SGLang, multinomial": {"color": COLORS[4]},
}


def draw(table: pa.Table) -> Figure:
    """The law of tokens per step, standard deviation against the nominal length, improvement against γ, and
    of a batch.
    """
    from matplotlib.figure import Figure

    fitted = table.slice(0, 1).to_pylist()[0]
    with figure_style():
        figure = Figure(figsize=(8.6, 6.6))
        axes = figure.subplots(2, 2)
        _draw_laws(axes[0, 0], where(table, quantity="probability"))
        for axis, quantity in (
            (axes[0, 1], "deviation"),
            (axes[1, 0], "improvement"),
            (axes[1, 1], "improvement of a batch"),
        ):
            for setting, line in groups(where(table, quantity=quantity), "setting").items():
                axis.plot(line["x"], line["value"], label=setting, **STYLES[setting])
        _draw_misses(axes[0, 1], where(table, quantity="mean"))
        axes[0, 0].set_title("probability of emitting so many tokens")
        axes[0, 0].set_xlabel("tokens per step")
        axes[0, 1].set_title("standard deviation (dash-dotted: bias of the mean)")
        axes[0, 1].set_xlabel("nominal mean of tokens per step")
        axes[1, 0].set_title("improvement, settings left as fitted")
        axes[1, 0].set_xlabel("drafted tokens γ")
        axes[1, 0].set_ylim(1.0, None)
        axes[1, 1].set_title(f"improvement of a batch, {fitted['request']} tokens each")
        axes[1, 1].set_xlabel("requests in the batch")
        axes[1, 1].set_xscale("log", base=2)
        axes[1, 1].xaxis.set_major_formatter("{x:g}")
        handles, labels = axes[1, 1].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=-(-len(handles) // 2))
        settings = f"{fitted['length']:g} tokens per step at γ = {fitted['gamma']}, c = {fitted['c']:g}"
        heading(figure, f"{TITLE} ({settings})")
        return figure


def _draw_laws(axis: Axes, table: pa.Table) -> None:
    """Bars, a group for each number of tokens."""
    laws = groups(table, "setting")
    width = 0.8 / len(laws)
    for place, (setting, law) in enumerate(laws.items()):
        shift = width * (place - (len(laws) - 1) / 2.0)
        axis.bar(
            [x + shift for x in law["x"]], law["value"], width=0.9 * width, color=STYLES[setting]["color"]
        )
    axis.grid(axis="x", visible=False)


def _draw_misses(axis: Axes, table: pa.Table) -> None:
    """How far the mean is from the nominal one, of settings that miss it."""
    for setting, line in groups(table, "setting").items():
        misses = [value - x for x, value in zip(line["x"], line["value"], strict=True)]
        if max(map(abs, misses)) > 1e-6:
            axis.plot(line["x"], misses, color=STYLES[setting]["color"], linestyle="-.", linewidth=1.0)
