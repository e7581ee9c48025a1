"""The two figures of a comparison."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from specsim.core._plotting import figure_style, heading
from specsim.simulation._comparison import Comparison, Entry
from specsim.simulation._draft_counts import BOUNDS, RULES, Acceptance

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


#: Enough colours and markers to tell the lossy rules apart.
COLORS = ("#2a5c8a", "#d1793b", "#4f8f5b", "#9b5a8c", "#b8a13a", "#3aa6a6", "#7a4b2b", "#5a5a5a")
MARKERS = ("o", "s", "^", "D")
#: Total variation below which a rule is drawn as lossless.
NONE = 1e-9


def pareto_figure(comparison: Comparison) -> Figure:
    """Tokens per step against TV: lossless rules on the axis, a line for each lossy rule."""
    from matplotlib.figure import Figure

    with figure_style():
        figure = Figure(figsize=(11.0, 5.6))
        left, right = figure.subplots(1, 2, width_ratios=(1.0, 2.4))
        honest = [entry for entry in comparison if entry.tv is not None]
        exact = [entry for entry in honest if entry.group in ("chain", "tree") and (entry.tv or 0.0) < NONE]
        _draw_lossless(left, exact)
        _draw_lossy(right, [entry for entry in honest if entry not in exact])
        heading(figure, f"Speed against bias ({comparison.source}, γ = {comparison.gamma})")
        return figure


def _draw_lossless(axis: Axes, entries: list[Entry]) -> None:
    """One label for each rule, shifted where labels would overlap, with a line to its value."""
    entries = sorted(entries, key=lambda entry: entry.tokens_per_step)
    values = np.array([entry.tokens_per_step for entry in entries])
    step = (values.max() - values.min()) / len(values) if len(values) > 1 else 0.0
    height = -np.inf
    for entry in entries:
        height = max(entry.tokens_per_step, height + step)
        color = COLORS[0] if entry.group == "chain" else COLORS[1]
        axis.plot([0.0], [entry.tokens_per_step], "o", color=color)
        axis.plot([0.0, 0.28], [entry.tokens_per_step, height], color=color, linewidth=0.6)
        axis.text(0.3, height, entry.name, color=color, fontsize=7.5, va="center")
    axis.set_xticks([0.0], ["0"])
    axis.set(xlim=(-0.05, 1.6), xlabel="total variation", ylabel="tokens per step")
    axis.set_title("Lossless: one draft (blue) or several")


def _draw_lossy(axis: Axes, entries: list[Entry]) -> None:
    lines: dict[str, list[Entry]] = {}
    for entry in entries:
        lines.setdefault(entry.line, []).append(entry)
    for number, (name, points) in enumerate(sorted(lines.items())):
        points.sort(key=lambda entry: (entry.tv or 0.0, entry.tokens_per_step))
        axis.plot(
            [float(entry.tv or 0.0) for entry in points],
            [entry.tokens_per_step for entry in points],
            marker=MARKERS[number // len(COLORS)],
            color=COLORS[number % len(COLORS)],
            linewidth=0.9,
            markersize=3.5,
            label=name,
        )
    axis.set_xlabel("total variation between a token's law and the target's, mean over contexts")
    axis.set_title("Lossy, over the range of each parameter")
    if lines:
        axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))


def drafts_figure(found: Iterable[Acceptance], pair: str) -> Figure:
    """Acceptance by number of drafts: simulated points, closed forms (thin), bounds α* (thick lines)."""
    from matplotlib.figure import Figure

    rows = list(found)
    with figure_style():
        figure = Figure(figsize=(8.4, 4.6))
        axis = figure.subplots()
        for number, drawing in enumerate(BOUNDS):
            bound = [row for row in rows if row.name == "bound" and row.drawing == drawing]
            drafts, best = [row.drafts for row in bound], [(row.theory or 0.0) for row in bound]
            label = f"α*, {drawing}"
            axis.plot(drafts, best, color=COLORS[number], linewidth=2.4, alpha=0.55, label=label)
        for number, name in enumerate(RULES):
            points = [row for row in rows if row.name == name]
            color = COLORS[BOUNDS.index(points[0].drawing)] if points else COLORS[0]
            simulated = [(row.simulated or 0.0) for row in points]
            errors = [2.0 * (row.error or 0.0) for row in points]
            drafts, marker = [row.drafts for row in points], "osD^v<>"[number]
            axis.errorbar(drafts, simulated, yerr=errors, fmt=marker, color=color, label=name)
            closed = [(row.drafts, row.theory) for row in points if row.theory is not None]
            axis.plot(*(zip(*closed, strict=True) if closed else ((), ())), color=color, linewidth=0.7)
        axis.set(xlabel="drafts K", ylabel="probability that one of them is accepted", ylim=(0.0, 1.02))
        axis.set_title(f"{pair}: acceptance by number of drafts, and the most that any rule can reach")
        axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
        return figure
