"""The best γ against α, for several c: Leviathan et al., arXiv 2211.17192, Figure 3."""

from __future__ import annotations

from typing import TYPE_CHECKING

from figures._columns import groups
from figures._palette import curve, figure_style

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.figure import Figure

TITLE = "The best γ against α (Leviathan et al., Figure 3)"
TABLES = ("leviathan_figure_3",)


def draw(table: pa.Table) -> Figure:
    """Steps for each c; α in [.5, .9], as printed."""
    from matplotlib.figure import Figure

    with figure_style():
        figure = Figure(figsize=(3.1, 3.2))
        axis = figure.subplots()
        for number, (c, line) in enumerate(groups(table, "c").items()):
            axis.plot(
                line["alpha"], line["gamma"], drawstyle="steps-post", label=f"c = {c:g}", **curve(number)
            )
        axis.set_xlim(0.5, 0.9)
        axis.set_ylim(0.0, 25.0)
        axis.set_xlabel("acceptance probability α")
        axis.set_ylabel("γ with the largest improvement")
        axis.set_title("The best γ against α")
        axis.legend(loc="upper left")
        return figure
