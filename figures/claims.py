"""How many claims of each document hold, and how many do not: `experiments.claims`, counted."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from figures._columns import groups
from figures._palette import COLORS, VERDICTS
from specsim.core._plotting import figure_style

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.figure import Figure

TITLE = "What five documents say of speculative decoding, checked"
TABLES = ("claims",)

#: From the best to the worst, and what nobody can say without the machines.
SHADES = {
    "holds": VERDICTS["reproduced"],
    "holds within rounding": "#7fa6c9",
    "true only if …": COLORS[4],
    "false": VERDICTS["not reproducible"],
    "not checkable here": "#c9c9c9",
}


def draw(table: pa.Table) -> Figure:
    """A bar for each document, the first above, cut by verdict; each part says how many."""
    from matplotlib.figure import Figure

    documents = groups(table, "source")
    counts = {source: Counter(rows["verdict"]) for source, rows in documents.items()}
    with figure_style():
        figure = Figure(figsize=(7.2, 2.9))
        axis = figure.subplots()
        done = dict.fromkeys(documents, 0)
        for verdict, color in SHADES.items():
            numbers = [counts[source][verdict] for source in documents]
            bars = axis.barh(list(documents), numbers, left=list(done.values()), color=color, label=verdict)
            ink = "white" if verdict in ("holds", "false") else "black"
            axis.bar_label(
                bars, [str(n) if n else "" for n in numbers], label_type="center", color=ink, fontsize=7
            )
            done = {source: done[source] + n for source, n in zip(documents, numbers, strict=True)}
        axis.invert_yaxis()
        axis.grid(visible=False, axis="y")
        axis.set_xlabel("claims")
        axis.set_title(TITLE)
        axis.legend(loc="upper right")
        return figure
