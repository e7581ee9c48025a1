"""Tokens per step of lossy rules against their total variation from the target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from figures._columns import groups, where
from figures._palette import COLORS, DARK_COLORS, GREY, figure_style, heading

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLE = "Speed against bias of lossy rules on the n-gram pair"
TABLES = ("lossy_speed",)

#: Colour and marker of each line.
MARKS = {
    "lenience": (COLORS[0], "o-"),
    "scaled_lenience": (COLORS[1], "s-"),
    "greedy_lenience": (COLORS[2], "^-"),
    "typical, epsilon": (COLORS[3], "D-"),
    "typical, delta": (DARK_COLORS[0], "P--"),
    "cascade_opt": (COLORS[4], "v-"),
}
#: Up to which total variation and how many tokens the second panel goes.
NEAR = (0.17, 2.6)


def draw(table: pa.Table) -> Figure:
    """Tokens per step, with the improvement on the right-hand scale, against total variation: a line for each
    rule and parameter, with two standard errors, the standard rule dotted; then the same close to the target.
    """
    from matplotlib.figure import Figure

    table = where(table, group="lossy")
    first = table.slice(0, 1).to_pylist()[0]
    per_token = first["improvement"] / first["tokens"]
    with figure_style():
        figure = Figure(figsize=(6.6, 3.5))
        axes = figure.subplots(1, 2, gridspec_kw={"wspace": 0.06})
        for axis, title in zip(
            axes, ("over the range of each parameter", "close to the target"), strict=True
        ):
            _draw_lines(axis, table)
            axis.set_title(title)
            axis.set_xlabel("total variation from the target")
            axis.spines["right"].set_visible(True)
            speed = axis.secondary_yaxis(
                "right", functions=(lambda y: y * per_token, lambda y: y / per_token)
            )
            speed.set_ylabel(f"improvement, c = {first['c']:g}")
        axes[0].set_ylabel(f"tokens per step, γ = {first['gamma']}")
        axes[1].locator_params(axis="x", nbins=4)
        axes[1].set_xlim(-0.003, NEAR[0])
        axes[1].set_ylim(first["tokens"] - 0.05, NEAR[1])
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
        heading(figure, TITLE)
        return figure


def _draw_lines(axis: Axes, table: pa.Table) -> None:
    for name, line in groups(table, "line").items():
        if name == "standard":
            axis.axhline(line["tokens"][0], color=GREY, linestyle=":", label=name)
            continue
        color, style = MARKS[name]
        axis.errorbar(
            line["tv"],
            line["tokens"],
            yerr=[2.0 * error for error in line["error"]],
            fmt=style,
            color=color,
            markersize=3.5,
            label=name,
        )
