"""Tokens per step of two logs of real models against γ, beside the formula for independent acceptances."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from figures._columns import groups, where
from figures._palette import curve, figure_style, points

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.figure import Figure

TITLE = "Tokens per step of two logs"
TABLES = ("logged_models",)

#: What the logs are of.
NAMES = {"ngram": "n-grams", "transformers": "transformers"}


def draw(table: pa.Table) -> Figure:
    """A panel for each log: the formula as a line, rules as points with intervals."""
    from matplotlib.figure import Figure

    with figure_style():
        figure = Figure(figsize=(6.4, 3.0))
        axes = figure.subplots(1, 2, sharey=True)
        for axis, (log, name) in zip(axes, NAMES.items(), strict=True):
            for number, (rule, found) in enumerate(groups(where(table, log=log), "rule").items()):
                if number == 0:
                    axis.plot(found["gamma"], found["formula"], **curve(2), label="formula at α")
                tokens = np.asarray(found["tokens_per_step"])
                errors = [tokens - found["low"], found["high"] - tokens]
                moved = np.asarray(found["gamma"]) + 0.08 * (2 * number - 1)
                axis.errorbar(moved, tokens, yerr=errors, **points(number), capsize=2, label=rule)
            axis.set_title(f"{name}, α = {found['alpha'][0]:.2f}")
            axis.set_xlabel("drafted tokens γ")
            axis.set_xticks(sorted(set(found["gamma"])))
            axis.legend(loc="upper left")
        axes[0].set_ylabel("tokens per step")
        return figure
