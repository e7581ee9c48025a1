"""Total variation from rounding rows, against the size of the vocabulary."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from figures._columns import groups, where
from figures._palette import COLORS
from specsim.core._plotting import figure_style, heading

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.figure import Figure

TITLE = "How far rounded rows move an exact rule from its target"
TABLES = ("precision",)

STYLES: dict[str, Any] = {"from the rounded q": "o-", "from the unrounded q": "s--", "none": "x"}


def draw(table: pa.Table) -> Figure:
    """A panel for each kind of tail, a colour for each dtype, a style for where drafts come from."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    with figure_style():
        figure = Figure(figsize=(7.6, 3.9))
        axes = figure.subplots(1, 2, sharey=True)
        colors = dict(zip(groups(table, "dtype"), COLORS, strict=False))
        for axis, tail in zip(axes, groups(table, "tail"), strict=True):
            for dtype, color in colors.items():
                for drafts, line in groups(where(table, tail=tail, dtype=dtype), "drafts").items():
                    axis.plot(
                        line["vocab_size"],
                        line["tv"],
                        STYLES[drafts],
                        color=color if "q" in drafts else "black",
                    )
            axis.set_xscale("log")
            axis.set_yscale("log")
            axis.set_xticks(line["vocab_size"], [f"{size:,}" for size in line["vocab_size"]])
            axis.minorticks_off()
            axis.set_xlabel("vocabulary size")
            axis.set_title(f"{tail} tail")
        axes[0].set_ylabel("total variation from the target in float64")
        handles = [
            *(Line2D([], [], color=color, label=dtype) for dtype, color in colors.items()),
            *(
                Line2D([], [], color="black", linestyle=style[1:], marker=style[0], label=_label(drafts))
                for drafts, style in STYLES.items()
            ),
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=-(-len(handles) // 2))
        heading(figure, TITLE)
        return figure


def _label(drafts: str) -> str:
    return "no drafts" if drafts == "none" else f"drafts {drafts}"
