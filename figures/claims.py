"""The verdicts on the claims of each document: `experiments.literature.claims`, counted."""

from __future__ import annotations

from textwrap import fill
from typing import TYPE_CHECKING, Any

from figures._columns import groups
from figures._palette import COLORS, figure_style

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.figure import Figure

TITLE = "Claims about speculative decoding, checked"
TABLES = ("claims",)

#: Face and hatch of each verdict.
SHADES: dict[str, dict[str, Any]] = {
    "right": {"color": COLORS[0]},
    "right with a condition": {"color": COLORS[4], "hatch": "//", "edgecolor": "white", "linewidth": 0},
    "wrong": {"color": COLORS[1]},
}


def draw(table: pa.Table) -> Figure:
    """A bar for each document, with a part for each verdict, labelled with its number of claims."""
    from matplotlib.figure import Figure

    documents = groups(table, "document")
    labels = [fill(title, 32) for title in documents]
    with figure_style():
        figure = Figure(figsize=(6.6, 4.8))
        axis = figure.subplots()
        ends = [0] * len(labels)
        for verdict, shade in SHADES.items():
            numbers = [rows["verdict"].count(verdict) for rows in documents.values()]
            bars = axis.barh(labels, numbers, left=ends, label=verdict, **shade)
            ink = "white" if verdict in ("right", "wrong") else "black"
            axis.bar_label(
                bars,
                [str(n) if n else "" for n in numbers],
                label_type="center",
                color=ink,
                fontsize=8,
                fontweight="bold",
            )
            ends = [end + n for end, n in zip(ends, numbers, strict=True)]
        axis.invert_yaxis()
        axis.grid(visible=False, axis="y")
        axis.set_xlabel("claims")
        axis.set_title(TITLE)
        figure.legend(loc="outside lower center", ncols=len(SHADES))
        return figure
