"""Measured speed-ups of a recording against γ, beside those of Theorem 3.8 with its α and c."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from figures._palette import curve, figure_style, points

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.figure import Figure

TITLE = "Measured speed-ups, and the formula"
TABLES = ("measured_speed",)


def draw(table: pa.Table) -> Figure:
    """The formula as a line, measured speed-ups as points with intervals; below 1 drafts slow down."""
    from matplotlib.figure import Figure

    gammas, speeds = (table[name].to_numpy() for name in ("gamma", "speedup"))
    ends = [speeds - table["speedup_low"].to_numpy(), table["speedup_high"].to_numpy() - speeds]
    with figure_style():
        figure = Figure(figsize=(4.2, 3.0))
        axis = figure.subplots()
        axis.plot(gammas, table["formula"].to_numpy(), **curve(2), label="Theorem 3.8 at α and c")
        axis.errorbar(gammas, speeds, yerr=np.maximum(ends, 0.0), **points(0), capsize=2, label="measured")
        axis.axhline(1.0, color="black", linewidth=1.0)
        axis.set_title(TITLE)
        axis.set_xlabel("drafted tokens γ")
        axis.set_ylabel("times as fast as the target alone")
        axis.set_xticks(gammas)
        axis.set_ylim(bottom=0.0)
        axis.legend(loc="lower left")
        return figure
