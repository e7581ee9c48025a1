"""The verdicts on the claims of each document: `experiments.claims`, counted."""

from __future__ import annotations

from textwrap import fill
from typing import TYPE_CHECKING

from figures._columns import groups
from figures._palette import COLORS, VERDICTS
from specsim.core._plotting import figure_style

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.figure import Figure

TITLE = "Claims of five documents on speculative decoding, checked"
TABLES = ("claims",)

SHADES = {
    "right": VERDICTS["reproduced"],
    "right with a condition": COLORS[4],
    "wrong": VERDICTS["not reproducible"],
    "not checkable": "#c9c9c9",
}


def draw(table: pa.Table) -> Figure:
    """A bar for each document, with a part for each verdict, labelled with its number of claims."""
    from matplotlib.figure import Figure

    documents = groups(table, "document")
    labels = [fill(title, 32) for title in documents]
    with figure_style():
        figure = Figure(figsize=(7.2, 2.9))
        axis = figure.subplots()
        ends = [0] * len(labels)
        for verdict, color in SHADES.items():
            numbers = [rows["verdict"].count(verdict) for rows in documents.values()]
            bars = axis.barh(labels, numbers, left=ends, color=color, label=verdict)
            ink = "white" if verdict in ("right", "wrong") else "black"
            axis.bar_label(
                bars, [str(n) if n else "" for n in numbers], label_type="center", color=ink, fontsize=7
            )
            ends = [end + n for end, n in zip(ends, numbers, strict=True)]
        axis.invert_yaxis()
        axis.grid(visible=False, axis="y")
        axis.set_xlabel("claims")
        axis.set_title(TITLE)
        axis.legend(loc="upper right")
        return figure
