"""The picture of the front page: speed and operations against α, and speed against bias.

`python -m figures.overview` draws it twice, for light and for dark pages, into docs/_static, and its first
panel alone, which a narrow page can show.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from figures._columns import groups, where
from figures._palette import COLORS, DARK_COLORS, MARKERS, figure_style, save_figure

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLE = "Speculative decoding at a glance: closed forms, simulated steps, and speed against bias"
TABLES = ("simulated_speed", "lossy_speed")

#: The quantities of the first three panels, with the panels' titles.
QUANTITIES = {
    "tokens": "expected tokens per step",
    "improvement": "wall-time improvement, c = {c:g}",
    "operations": "arithmetic operations, ĉ = {c:g}",
}
#: The lines of the last panel and what the legend calls them; the others are in the figure of lossy rules.
LOSSY = {
    "lenience": "lenience",
    "scaled_lenience": "lenience, scaled residual",
    "cascade_opt": "cascade, OPT",
    "typical, delta": "typical acceptance",
}
#: The range of the last panel; the names of lossless rules stand left of 0.
TV, TOKENS = (-0.16, 0.32), (1.3, 3.6)
#: How far apart the names of lossless rules are at least, in tokens per step.
APART = 0.12

#: The colours of text, grid and lines on a page of each colour scheme; backgrounds are transparent.
INK = {"light": "#24292f", "dark": "#d8dee6"}
GRID = {"light": "#d9dde2", "dark": "#3a424c"}
LINES = {"light": COLORS, "dark": DARK_COLORS}


def draw(speed: pa.Table, bias: pa.Table, *, page: str = "light") -> Figure:
    """Four panels: tokens per step, improvement and operations against α, lines closed forms, points
    simulated; then tokens per step against total variation, for lossless rules and for lossy ones over the
    range of their parameter."""
    from matplotlib.figure import Figure

    with _style_of(page):
        figure = Figure(figsize=(8.3, 5.9))
        axes = figure.subplots(2, 2).ravel()
        _draw_speed(axes[:3], speed, LINES[page])
        _draw_bias(axes[3], bias, LINES[page])
        return figure


def draw_first(speed: pa.Table, *, page: str = "light") -> Figure:
    """The first panel alone, in the width of a telephone."""
    from matplotlib.figure import Figure

    with _style_of(page):
        figure = Figure(figsize=(3.9, 3.0))
        _draw_speed([figure.subplots()], speed, LINES[page])
        return figure


@contextmanager
def _style_of(page: str) -> Iterator[None]:
    from matplotlib import rc_context

    inked = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    clear = ("figure.facecolor", "axes.facecolor", "savefig.facecolor")
    settings: dict[Any, str] = dict.fromkeys(inked, INK[page]) | dict.fromkeys(clear, "none")
    with figure_style(), rc_context(settings | {"grid.color": GRID[page]}):
        yield


def _draw_speed(axes: Sequence[Axes], table: pa.Table, colors: Sequence[str]) -> None:
    c = table["c"][0].as_py()
    lines = groups(where(table, kind="closed form"), "gamma")
    points = groups(where(table, kind="simulated"), "gamma")
    for (gamma, line), color, marker in zip(lines.items(), colors, MARKERS, strict=True):
        for axis, quantity in zip(axes, QUANTITIES, strict=False):
            axis.plot(line["alpha"], line[quantity], "-", color=color, linewidth=1.2)
            alphas, values = points[gamma]["alpha"], points[gamma][quantity]
            axis.plot(alphas, values, marker, color=color, label=f"γ = {gamma}")
    for axis, title in zip(axes, QUANTITIES.values(), strict=False):
        axis.set_title(title.format(c=c))
        axis.set_xlabel("acceptance probability α")
    axes[0].legend(loc="upper left", title="lines: closed forms\npoints: simulated", title_fontsize=8)


def _draw_bias(axis: Axes, table: pa.Table, colors: Sequence[str]) -> None:
    lines = groups(where(table, group="lossy"), "line")
    for (name, label), color, marker in zip(LOSSY.items(), colors[1:], MARKERS[1:], strict=True):
        line = lines[name]
        axis.plot(line["tv"], line["tokens"], f"{marker}-", color=color, markersize=3.5, label=label)
    below = 0.0
    for rule in sorted(where(table, group="lossless").to_pylist(), key=lambda row: row["tokens"]):
        marker = "o" if rule["chains"] == 1 else "P"
        axis.plot(rule["tv"], rule["tokens"], marker, color=colors[0], markersize=5, zorder=3)
        below = max(rule["tokens"], below + APART)
        name = rule["rule"].replace("_", " ")
        axis.text(-0.01, below, name, color=colors[0], fontsize=8, ha="right", va="center")
    axis.plot([], [], "o", color=colors[0], label="lossless, one draft")
    axis.plot([], [], "P", color=colors[0], label="lossless, two drafts")
    axis.set_xlim(*TV)
    axis.set_ylim(*TOKENS)
    axis.set_xticks([0.0, 0.1, 0.2, 0.3])
    axis.set_title(f"tokens per step against bias, γ = {table['gamma'][0].as_py()}")
    axis.set_xlabel("total variation from the target (n-gram pair)")
    axis.legend(loc="upper left")


def write(folder: Path, speed: pa.Table, bias: pa.Table) -> None:
    """Write overview-light.svg and overview-dark.svg, and the same of first, into `folder`."""
    for page in INK:
        save_figure(draw(speed, bias, page=page), folder / f"overview-{page}.svg")
        save_figure(draw_first(speed, page=page), folder / f"first-{page}.svg")


if __name__ == "__main__":
    from experiments._tables import table

    made = Path("results/figures/tables")
    write(Path("docs/_static"), *(table(name, made, fast=False, rng=0) for name in TABLES))
