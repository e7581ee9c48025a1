"""The kill matrix as a picture: which criteria pass which verifiers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from figures._palette import GREY, figure_style, heading

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.figure import Figure

TITLE = "Fraction of runs in which a criterion passes a verifier"
TABLES = ("kill_matrix",)

#: Right answers light blue, wrong ones orange; grey where the criterion does not apply.
RIGHT, WRONG, NOTHING = "#9fc5e0", "#e8923f", "#eeeeee"


def draw(table: pa.Table) -> Figure:
    """A row for each verifier, a column for each criterion; the number in a cell is the fraction of runs that
    pass."""
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    rows = table.to_pylist()
    criteria = list(dict.fromkeys(row["criterion"] for row in rows))
    families: dict[str, dict[str, bool]] = {}
    for row in rows:
        families.setdefault(row["family"], {})[row["verifier"]] = row["exact"]
    verifiers = {name: exact for members in families.values() for name, exact in members.items()}
    passed = np.full((len(verifiers), len(criteria)), np.nan)
    for row in rows:
        place = list(verifiers).index(row["verifier"]), criteria.index(row["criterion"])
        passed[place] = row["passed"] / row["runs"]
    exact = np.array(list(verifiers.values()))[:, None]
    with figure_style():
        figure = Figure(figsize=(max(8.0, 3.2 + 0.75 * len(criteria)), 1.9 + 0.22 * len(verifiers)))
        axis = figure.subplots()
        scale = LinearSegmentedColormap.from_list("wrong", [RIGHT, "#f6f3ee", WRONG])
        axis.imshow(
            np.ma.masked_invalid(np.where(exact, 1 - passed, passed)),
            cmap=scale.with_extremes(bad=NOTHING),
            vmin=0.0,
            vmax=1.0,
            aspect="auto",
        )
        for (i, j), fraction in np.ndenumerate(passed):
            wrong = (1 - fraction if exact[i, 0] else fraction) > 0.5
            weight = "bold" if wrong else "normal"
            axis.text(j, i, _shown(fraction), ha="center", va="center", fontsize=7.5, fontweight=weight)
        axis.set_xticks(range(len(criteria)), criteria, rotation=35, ha="left", rotation_mode="anchor")
        axis.set_yticks(range(len(verifiers)), list(verifiers))
        axis.tick_params(top=True, labeltop=True, bottom=False, labelbottom=False, length=0)
        axis.set_yticks(np.arange(len(verifiers) + 1) - 0.5, minor=True)
        axis.set_xticks(np.arange(len(criteria) + 1) - 0.5, minor=True)
        axis.grid(False)
        axis.grid(True, which="minor", color="white", linewidth=1.5)
        axis.tick_params(which="minor", length=0)
        axis.spines[:].set_visible(False)
        start = 0
        for family, members in families.items():
            axis.text(len(criteria) - 0.4, start, family, va="center", fontsize=7.5, color=GREY)
            if start:
                axis.axhline(start - 0.5, color=GREY, linewidth=0.8)
            start += len(members)
        axis.legend(
            handles=[
                Patch(color=RIGHT, label="right answer"),
                Patch(color=WRONG, label="wrong answer (bold)"),
                Patch(color=NOTHING, label="– not applicable: the criterion draws the drafts itself"),
            ],
            loc="upper left",
            bbox_to_anchor=(0.0, -0.01),
            ncols=3,
        )
        heading(figure, TITLE)
        return figure


def _shown(fraction: float) -> str:
    """0, 1, or two decimals; – without a cell."""
    return "–" if np.isnan(fraction) else f"{fraction:.{2 if 0 < fraction < 1 else 0}f}"
