"""Time per token of each policy that chooses γ, less that of the best constant, on the same drafts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from figures._columns import groups, where
from figures._palette import COLORS, GREY, figure_style, heading

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.figure import Figure

TITLE = "Policies that choose γ: time per token less that of the best constant"
TABLES = ("draft_length_policies",)


def draw(table: pa.Table) -> Figure:
    """A panel for each pair and cost, a row for each policy with two standard errors; left is faster."""
    from matplotlib.figure import Figure

    pairs, costs = list(groups(table, "pair")), list(groups(table, "c"))
    with figure_style():
        figure = Figure(figsize=(6.6, 6.0))
        axes = figure.subplots(len(pairs), len(costs), sharey=True, squeeze=False)
        for row, pair in zip(axes, pairs, strict=True):
            for axis, c in zip(row, costs, strict=True):
                shown = where(table, pair=pair, c=c).to_pydict()
                names, differences = shown["policy"], shown["difference"]
                errors = [2.0 * error for error in shown["difference_error"]]
                marks = [("D", GREY) if name == "oracle" else ("o", COLORS[0]) for name in names]
                axis.axvline(0.0, color="black", linewidth=1.0)
                for y, (x, error, (marker, color), speed) in enumerate(
                    zip(differences, errors, marks, shown["speedup"], strict=True)
                ):
                    axis.errorbar(x, y, xerr=error, fmt=marker, color=color)
                    axis.annotate(
                        f"{speed:.2f}", (1.0, y), xycoords=("axes fraction", "data"), va="center", fontsize=7
                    )
                axis.set_yticks(range(len(names)), names)
                axis.margins(x=0.12)
                axis.locator_params(axis="x", nbins=5)
                alpha, best = shown["alpha_context"][0], shown["best_constant"][0]
                axis.set_title(f"c = {c:g}, α = {alpha:.2f}, best constant {best}", fontsize=8)
            row[0].set_ylabel(pair)
        axes[0, 0].invert_yaxis()
        figure.supxlabel(
            "difference in passes of the target per token (points); speed-up (numbers)", fontsize=8
        )
        heading(figure, TITLE)
        return figure
