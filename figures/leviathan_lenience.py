"""What lenience gains: Thm 3.8 against γ, and the printed speed-ups above it (Leviathan et al., text on Table
5).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from figures._columns import groups
from figures._palette import GREY, curve, figure_style, points

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.figure import Figure

TITLE = "Lenience: published speed-ups, and the largest that the theorem allows (Leviathan et al., Table 5)"
TABLES = ("leviathan_lenience",)


def draw(table: pa.Table) -> Figure:
    """A line for each lenience, with the band of all α and c that round to the printed ones, its maximum, and
    the printed speed-up, grey."""
    from matplotlib.figure import Figure

    with figure_style():
        figure = Figure(figsize=(3.4, 3.2))
        axis = figure.subplots()
        for number, (lenience, line) in enumerate(groups(table, "lenience").items()):
            style = curve(number)
            best = int(np.argmax(line["improvement"]))
            gamma, most, printed = line["gamma"][best], line["improvement"][best], line["printed"][0]
            axis.fill_between(
                line["gamma"], line["low"], line["high"], color=style["color"], alpha=0.2, linewidth=0
            )
            label = f"l = {lenience:g}, α = {line['alpha'][0]:g}: at most {most:.2f}, with γ = {gamma}"
            axis.plot(line["gamma"], line["improvement"], label=label, **style)
            axis.plot([gamma], [most], **points(number))
            axis.axhline(float(printed), color=GREY, linewidth=0.8)
            axis.annotate(
                f"printed {printed}",
                (1.01, float(printed)),
                xycoords=("axes fraction", "data"),
                va="center",
                fontsize=7,
            )
        axis.set_xlim(1, 30)
        axis.set_ylim(1.0, 5.4)
        axis.set_xlabel("drafted tokens γ")
        axis.set_ylabel("improvement, c = 0.015")
        axis.set_title("Lenience: printed and best speed-up")
        figure.legend(loc="outside lower center")
        return figure
