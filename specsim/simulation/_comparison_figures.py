"""The two figures of a comparison."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from specsim.core._plotting import COLORS, LINES, Axes, Figure, curve, figure_style, heading, points
from specsim.simulation._comparison import BOUNDS, RULES, Acceptance, Comparison, Entry

#: Panels of lossy rules side by side.
COLUMNS = 4
#: Total variation below which a rule is drawn as lossless.
NONE = 1e-9


def pareto_figure(comparison: Comparison) -> Figure:
    """Tokens per step against TV: lossless rules on the left, a panel for each lossy rule, others grey."""
    from matplotlib.figure import Figure

    with figure_style():
        honest = [entry for entry in comparison if entry.tv is not None]
        exact = [entry for entry in honest if entry.group in ("chain", "tree") and (entry.tv or 0.0) < NONE]
        lossy: dict[str, list[Entry]] = {}
        for entry in sorted(honest, key=lambda entry: entry.rule):
            if entry not in exact:
                lossy.setdefault(entry.name, []).append(entry)
        # rules with legends side by side
        names = sorted(lossy, key=lambda name: -len({entry.line for entry in lossy[name]}))
        rows = max(1, -(-len(lossy) // COLUMNS))
        figure = Figure(figsize=(8.3, 1.6 + max(3.0, 1.4 * rows)))
        grid = figure.add_gridspec(rows, COLUMNS + 1, width_ratios=[1.8, *[1.0] * COLUMNS])
        left = figure.add_subplot(grid[:, 0])
        _draw_lossless(left, exact)
        places = [(place // COLUMNS, 1 + place % COLUMNS) for place in range(len(lossy))]
        panels = [figure.add_subplot(grid[place]) for place in places]
        for place, (panel, name) in enumerate(zip(panels, names, strict=True)):
            _draw_lossy(panel, lossy, name)
            panel.sharex(panels[0])
            panel.sharey(panels[0])
            panel.tick_params(labelleft=place % COLUMNS == 0, labelbottom=place + COLUMNS >= len(lossy))
        about = "total variation between a token's distribution and the target's, mean over contexts"
        figure.supxlabel(about, fontsize=8)
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
        axis.plot([0.0, 0.28], [entry.tokens_per_step, height], color="0.6", linewidth=0.6, linestyle="-")
        axis.text(0.3, height, entry.name, fontsize=7, va="center")
    for number, (group, drafts) in enumerate({"chain": "one draft", "tree": "several drafts"}.items()):
        some = [entry.tokens_per_step for entry in entries if entry.group == group]
        if some:
            axis.plot([0.0] * len(some), some, label=drafts, **points(number))
    axis.set_xticks([0.0], ["0"])
    axis.set(xlim=(-0.12, 1.9), ylabel="tokens per step")
    axis.set_title("Lossless")
    if entries:
        axis.legend(loc="upper left", bbox_to_anchor=(0.0, -0.03), borderaxespad=0.0)


def _draw_lossy(axis: Axes, lossy: dict[str, list[Entry]], name: str) -> None:
    """A line for each parameter of the rule `name`; all other rules as grey points."""
    others = [entry for rule, entries in lossy.items() if rule != name for entry in entries]
    axis.plot(*_places(others), ".", color="0.85", markersize=3.0, zorder=1)
    lines: dict[str, list[Entry]] = {}
    for entry in lossy[name]:
        lines.setdefault(entry.line, []).append(entry)
    for number, (line, entries) in enumerate(lines.items()):
        entries.sort(key=lambda entry: (entry.tv or 0.0, entry.tokens_per_step))
        style = points(number % len(COLORS)) | {"linestyle": LINES[number % len(LINES)]}
        label = line.partition(", ")[2] or "default"
        axis.plot(*_places(entries), label=label, linewidth=1.0, markersize=3.5, **style)
    if len(lines) == 1:
        axis.set_title(name, fontsize=8)
        return
    place: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0), "alignment": "left"}
    tight: dict[str, Any] = {"borderaxespad": 0.2, "borderpad": 0.0, "labelspacing": 0.2, "handlelength": 2.0}
    axis.legend(title=name, fontsize=7, title_fontsize=8, **place, **tight)


def _places(entries: Sequence[Entry]) -> tuple[list[float], list[float]]:
    """The values of TV, and the tokens per step."""
    return [entry.tv or 0.0 for entry in entries], [entry.tokens_per_step for entry in entries]


def drafts_figure(found: Iterable[Acceptance], pair: str) -> Figure:
    """Acceptance by number of drafts: simulated points, closed forms (thin), bounds α* (thick lines)."""
    from matplotlib.figure import Figure

    rows = list(found)
    with figure_style():
        figure = Figure(figsize=(8.3, 4.4))
        axis = figure.subplots()
        for number, way in enumerate(BOUNDS):
            bound = [row for row in rows if row.name == "bound" and row.draft_sampling == way]
            drafts, best = [row.drafts for row in bound], [(row.theory or 0.0) for row in bound]
            label = f"α*, {way}"
            axis.plot(drafts, best, linewidth=2.4, alpha=0.55, label=label, **curve(number))
        for number, name in enumerate(RULES):
            points = [row for row in rows if row.name == name]
            color = COLORS[BOUNDS.index(points[0].draft_sampling)] if points else COLORS[0]
            simulated = [(row.simulated or 0.0) for row in points]
            errors = [2.0 * (row.error or 0.0) for row in points]
            drafts, marker = [row.drafts for row in points], "osD^v<>"[number]
            axis.errorbar(drafts, simulated, yerr=errors, fmt=marker, color=color, label=name)
            closed = [row for row in points if row.theory is not None]
            drafts, theory = [row.drafts for row in closed], [row.theory or 0.0 for row in closed]
            axis.plot(drafts, theory, color=color, linestyle="-", linewidth=0.7)
        axis.set(xlabel="drafts K", ylabel="probability that one of them is accepted", ylim=(0.0, 1.02))
        axis.set_title(f"Acceptance by number of drafts, and its bounds α*: {pair}")
        axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
        return figure
