"""What lenience gains: Thm 3.8 against γ, and the printed speed-ups above it (Leviathan et al., text on Table
5).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from figures._columns import groups
from figures._palette import COLORS
from specsim.core._plotting import figure_style

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.figure import Figure

TITLE = "Lenience: published speed-ups, and the largest that the theorem allows (Leviathan et al., Table 5)"
TABLES = ("leviathan_lenience",)


def draw(table: pa.Table) -> Figure:
    """A line for each lenience, with the band of all α and c that round to the printed ones, its maximum, and
    the printed speed-up, dashed.
    """
    from matplotlib.figure import Figure

    with figure_style():
        figure = Figure(figsize=(7.6, 4.8))
        axis = figure.subplots()
        for (lenience, line), color in zip(groups(table, "lenience").items(), COLORS, strict=False):
            best = int(np.argmax(line["improvement"]))
            gamma, most, printed = line["gamma"][best], line["improvement"][best], line["printed"][0]
            axis.fill_between(line["gamma"], line["low"], line["high"], color=color, alpha=0.2, linewidth=0)
            axis.plot(line["gamma"], line["improvement"], color=color)
            axis.plot([gamma], [most], "o", color=color)
            axis.axhline(float(printed), color=color, linestyle="--", linewidth=1.0)
            axis.annotate(
                f"at most {most:.2f}, γ = {gamma}",
                (gamma, line["low"][best] - 0.03),
                ha="center",
                va="top",
                fontsize=8,
                color=color,
            )
            for text, height, side in (
                (f"published {printed}", float(printed), "bottom"),
                (f"l = {lenience:g}, α = {line['alpha'][0]:g}", line["improvement"][-1], "top"),
            ):
                axis.annotate(
                    text, (1.01, height), xycoords=("axes fraction", "data"), va=side, fontsize=8, color=color
                )
        axis.set_xlim(1, 30)
        axis.set_ylim(1.0, 5.4)
        axis.set_xlabel("drafted tokens γ")
        axis.set_ylabel("improvement in wall time, c = 0.015")
        axis.set_title(TITLE)
        return figure
