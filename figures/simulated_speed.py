"""Speed and operations from simulated steps, as points, on the lines of the closed forms."""

from __future__ import annotations

from typing import TYPE_CHECKING

from figures._columns import groups, where
from figures._palette import BAND, GREY, curve, figure_style, heading, points

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.figure import Figure

TITLE = "Simulated steps (points) on the closed forms (lines)"
TABLES = ("simulated_speed",)


def draw(table: pa.Table) -> Figure:
    """Tokens per step, improvement and operations against α, a colour and marker for each γ; last, deviations
    in standard errors."""
    from matplotlib.figure import Figure

    c = table["c"][0].as_py()
    with figure_style():
        figure = Figure(figsize=(6.2, 5.4))
        axes = figure.subplots(2, 2, sharex=True).ravel()
        labels = {
            "tokens": "tokens per step; speed at c = 0",
            "improvement": f"improvement in wall time, c = {c:g}",
            "operations": f"operations, ĉ = {c:g}",
        }
        lines = groups(where(table, kind="closed form"), "gamma")
        simulated = groups(where(table, kind="simulated"), "gamma")
        for number, (gamma, line) in enumerate(lines.items()):
            point, marks = simulated[gamma], points(number)
            for axis, quantity in zip(axes, labels, strict=False):
                axis.plot(line["alpha"], line[quantity], linewidth=0.9, **curve(number) | {"color": GREY})
                errors = [2.0 * error for error in point[f"{quantity}_error"]]
                axis.errorbar(point["alpha"], point[quantity], yerr=errors, label=f"γ = {gamma}", **marks)
            shift = 0.004 * (number - 2)  # beside each other
            axes[3].plot([alpha + shift for alpha in point["alpha"]], point["deviation"], **marks)
        axes[3].axhspan(-2.0, 2.0, color=BAND, linewidth=0)
        axes[3].axhline(0.0, color="black", linewidth=1.0)
        axes[3].set_ylim(-5.0, 5.0)
        for axis, title in zip(axes, (*labels.values(), "difference in standard errors"), strict=True):
            axis.set_title(title)
        for axis in axes[2:]:
            axis.set_xlabel("acceptance probability α")
        axes[0].legend(loc="upper left")
        heading(figure, f"{TITLE}, {point['steps'][0]:,} steps each")
        return figure
