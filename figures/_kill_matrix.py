"""The picture of a kill matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from experiments.kill_matrix.table import UNSEEN, KillMatrix, show_cell
from specsim.core._plotting import figure_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["matrix_figure"]

#: Right answers blue, wrong ones orange, a colour-blind safe pair; grey where there is nothing to see.
RIGHT, WRONG, NOTHING = "#9fc5e0", "#e8923f", "#eeeeee"


def matrix_figure(matrix: KillMatrix) -> Figure:
    """A row for each verifier, a column for each criterion; the number in a cell is the fraction of runs that pass."""
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    families = matrix.by_family()
    rows = [row for _, members in families for row in members]
    shown = [[matrix.cell(row.name, column.name) for column in matrix.columns] for row in rows]
    error = np.array(
        [
            [np.nan if cell is None else 1 - cell.fraction if row.exact else cell.fraction for cell in cells]
            for row, cells in zip(rows, shown, strict=True)
        ]
    )
    with figure_style():
        figure = Figure(figsize=(3.2 + 0.75 * len(matrix.columns), 1.9 + 0.22 * len(rows)))
        axis = figure.subplots()
        scale = LinearSegmentedColormap.from_list("wrong", [RIGHT, "#f6f3ee", WRONG])
        axis.imshow(
            np.ma.masked_invalid(error),
            cmap=scale.with_extremes(bad=NOTHING),
            vmin=0.0,
            vmax=1.0,
            aspect="auto",
        )
        for i, cells in enumerate(shown):
            for j, cell in enumerate(cells):
                axis.text(j, i, show_cell(cell), ha="center", va="center", fontsize=7.5)
        axis.set_xticks(
            range(len(matrix.columns)),
            [column.name for column in matrix.columns],
            rotation=35,
            ha="left",
            rotation_mode="anchor",
        )
        axis.set_yticks(range(len(rows)), [row.name for row in rows])
        axis.tick_params(top=True, labeltop=True, bottom=False, labelbottom=False, length=0)
        axis.set_yticks(np.arange(len(rows) + 1) - 0.5, minor=True)
        axis.set_xticks(np.arange(len(matrix.columns) + 1) - 0.5, minor=True)
        axis.grid(False)
        axis.grid(True, which="minor", color="white", linewidth=1.5)
        axis.tick_params(which="minor", length=0)
        axis.spines[:].set_visible(False)
        starts = np.cumsum([0, *(len(members) for _, members in families)])
        for start, (family, _) in zip(starts, families, strict=False):
            axis.text(len(matrix.columns) - 0.4, start, family, va="center", fontsize=7.5, color="#555555")
            if start:
                axis.axhline(start - 0.5, color="#555555", linewidth=0.8)
        axis.legend(
            handles=[
                Patch(color=RIGHT, label="right answer"),
                Patch(color=WRONG, label="wrong answer"),
                Patch(color=NOTHING, label=f"– {UNSEEN}"),
            ],
            loc="upper left",
            bbox_to_anchor=(0.0, -0.01),
            ncols=3,
        )
        figure.suptitle(
            "Fraction of runs in which a test lets a verifier pass",
            x=0.01,
            ha="left",
            fontweight="bold",
            fontsize=11,
        )
        return figure
