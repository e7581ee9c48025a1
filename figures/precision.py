"""Total variation from rounding rows, against the size of the vocabulary."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from figures._columns import groups, where
from figures._palette import GREY, figure_style, heading, points

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.figure import Figure

TITLE = "How far rounded rows move an exact rule from its target"
TABLES = ("precision",)

DASHES: dict[str, Any] = {"from the rounded q": "-", "from the unrounded q": "--"}
NO_DRAFTS: dict[str, Any] = {"color": "black", "linestyle": "none", "marker": "x"}


def draw(table: pa.Table) -> Figure:
    """A panel for each kind of tail, a colour and marker for each dtype, dashes for where drafts are from."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    with figure_style():
        figure = Figure(figsize=(6.6, 3.4))
        axes = figure.subplots(1, 2, sharey=True)
        marks = {dtype: points(number) for number, dtype in enumerate(groups(table, "dtype"))}
        for axis, tail in zip(axes, groups(table, "tail"), strict=True):
            for dtype, mark in marks.items():
                for drafts, line in groups(where(table, tail=tail, dtype=dtype), "drafts").items():
                    style = NO_DRAFTS if drafts == "none" else mark | {"linestyle": DASHES[drafts]}
                    axis.plot(line["vocab_size"], line["tv"], **style)
            axis.set_xscale("log")
            axis.set_yscale("log")
            axis.set_xticks(line["vocab_size"], [f"{size:,}" for size in line["vocab_size"]], fontsize=7)
            axis.minorticks_off()
            axis.set_xlabel("vocabulary size")
            axis.set_title(f"{tail} tail")
        axes[0].set_ylabel("total variation from the target in float64")
        handles = [
            *(Line2D([], [], **mark, label=dtype) for dtype, mark in marks.items()),
            *(
                Line2D([], [], color=GREY, linestyle=style, label=f"drafts {drafts}")
                for drafts, style in DASHES.items()
            ),
            Line2D([], [], **NO_DRAFTS, label="no drafts"),
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=-(-len(handles) // 2))
        heading(figure, TITLE)
        return figure
