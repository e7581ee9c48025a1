"""Acceptance against lenience, for the n-gram pair and for synthetic ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from figures._columns import groups, where
from figures._palette import curve, figure_style, heading, points

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.figure import Figure

TITLE = "Acceptance against lenience"
TABLES = ("acceptance_by_temperature",)


def draw(table: pa.Table) -> Figure:
    """α against l, and beside it what that costs: α(l) - α(1), the least total variation of a rule that
    accepts as much, and that of lenience with the residual (p - q)₊."""
    from matplotlib.figure import Figure

    with figure_style():
        figure = Figure(figsize=(6.3, 3.0))
        axes = figure.subplots(1, 2)
        for number, (pair, line) in enumerate(groups(where(table, quantity="lenience"), "pair").items()):
            style = curve(number) | {"marker": points(number)["marker"], "markevery": 3, "label": pair}
            axes[0].plot(line["value"], line["alpha"], **style)
            exact = dict(zip(line["value"], line["alpha"], strict=True))[1.0]
            axes[1].plot(line["value"], [alpha - exact for alpha in line["alpha"]], **style)
        axes[0].set(ylabel="α, mean of Σ min(p/l, q)", ylim=(0.0, 1.02))
        axes[1].set(ylabel="total variation, α(l) - α(1)", ylim=(0.0, None))
        for axis in axes:
            axis.set(xlabel="lenience l; 1 is the standard rule")
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
        heading(figure, TITLE)
        return figure
