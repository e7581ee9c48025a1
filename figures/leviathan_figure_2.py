"""Tokens that a step emits, against α, for several γ: Leviathan et al., arXiv 2211.17192, Figure 2."""

from __future__ import annotations

from typing import TYPE_CHECKING

from figures._columns import groups
from figures._palette import curve, figure_style

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.figure import Figure

TITLE = "Tokens per step against α (Leviathan et al., Figure 2)"
TABLES = ("leviathan_figure_2",)


def draw(table: pa.Table) -> Figure:
    """A line for each γ; α in [.5, .9], up to 10 tokens, as printed."""
    from matplotlib.figure import Figure

    with figure_style():
        figure = Figure(figsize=(6.0, 4.2))
        axis = figure.subplots()
        for number, (gamma, line) in reversed(list(enumerate(groups(table, "gamma").items()))):
            label = f"γ = {'∞' if gamma is None else gamma}"
            axis.plot(line["alpha"], line["tokens"], label=label, **curve(number))
        axis.axhline(1.0, color="black", linewidth=0.8)
        axis.text(0.51, 0.9, "target alone", va="top")
        axis.set_xlim(0.5, 0.9)
        axis.set_ylim(0.0, 10.0)
        axis.set_xlabel("acceptance probability α")
        axis.set_ylabel("expected tokens per step")
        axis.set_title(TITLE)
        axis.legend(loc="upper left")
        return figure
