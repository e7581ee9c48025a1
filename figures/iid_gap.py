"""What independence gets wrong along a text: tokens per step, its overstatement, autocorrelation, and the
best γ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from figures._columns import groups, where
from figures._palette import BAND, GREY, curve, figure_style, heading

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLE = "Tokens per step along a text: measured, and by the i.i.d. formula"
TABLES = ("iid_gap",)

#: The colour and dashes of each α that the formula is fed with.
ALPHAS = {"alpha_context": curve(0), "alpha_verified": curve(1), "alpha_drafted": curve(2)}
#: Those of what is correlated with itself along a text.
CORRELATED: dict[str, Any] = {"acceptance": curve(3), "β": curve(4)}
MEASURED: dict[str, Any] = {"color": "black", "linestyle": "none", "markersize": 3.5}
#: The marker of each draft, in the order of the table.
DRAFTS = ("o", "s")


def draw(table: pa.Table) -> Figure:
    """Tokens per step and overstatement against γ, autocorrelation against the lag, and the best γ for each
    c; round for the 2-gram draft, square for the one moved towards its target. Bars and bands are two
    standard errors."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    with figure_style():
        figure = Figure(figsize=(6.6, 6.0))
        axes = figure.subplots(2, 2)
        weights = list(groups(table, "weight"))
        for weight, marker in zip(weights, DRAFTS, strict=True):
            part = where(table, weight=weight)
            _draw_tokens(axes[0, 0], where(part, quantity="tokens per step"), marker)
            _draw_overstatement(axes[0, 1], where(part, quantity="overstatement"), marker)
            _draw_correlation(axes[1, 0], where(part, quantity="autocorrelation"), marker)
        _draw_best(axes[1, 1], table, weights)
        axes[0, 0].set_title("tokens per step")
        axes[0, 1].set_title("formula / measured - 1, %")
        axes[0, 1].axhline(0.0, color="black", linewidth=1.0)
        for axis in axes[0]:
            axis.set_xlabel("drafted tokens γ")
            axis.set_xticks([1, 4, 8, 12, 16, 20, 24])
        axes[0, 0].set_ylim(1.0, None)
        axes[1, 0].set_title("autocorrelation (band: ±2 s.e.)")
        axes[1, 0].set_xlabel("lag along the text, tokens")
        axes[1, 0].set_xticks([1, 5, 10, 15, 20])
        handles = [
            *(Line2D([], [], **style, label=_shown(of)) for of, style in ALPHAS.items()),
            Line2D([], [], **MEASURED, marker="o", label="measured"),
            Line2D([], [], **MEASURED, marker="o", fillstyle="none", label="steps from anywhere"),
            *(Line2D([], [], **style, label=of) for of, style in CORRELATED.items()),
            *(
                Line2D([], [], color=GREY, marker=marker, label=label)
                for marker, label in zip(DRAFTS, _names(weights), strict=True)
            ),
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=-(-len(handles) // 2))
        heading(figure, TITLE)
        return figure


def _names(weights: list[float]) -> list[str]:
    return [f"draft moved by {weight:g}" if weight else "2-gram draft" for weight in weights]


def _shown(of: str) -> str:
    return of.replace("_", " ").replace("alpha", "α")


def _draw_tokens(axis: Axes, table: pa.Table, marker: str) -> None:
    for of, line in groups(table, "of").items():
        if of in ALPHAS:
            axis.plot(line["x"], line["value"], **ALPHAS[of])
        elif of == "anywhere":
            axis.plot(line["x"], line["value"], marker=marker, fillstyle="none", **MEASURED)
        else:
            errors = [2.0 * error for error in line["error"]]
            axis.errorbar(line["x"], line["value"], yerr=errors, marker=marker, **MEASURED)


def _draw_overstatement(axis: Axes, table: pa.Table, marker: str) -> None:
    """alpha_drafted is far below, and left out."""
    for of, line in groups(table, "of").items():
        if of != "alpha_drafted":
            style = ALPHAS[of]
            middle = [100.0 * value for value in line["value"]]
            low, high = (
                [value + sign * error for value, error in zip(middle, line["error"], strict=True)]
                for sign in (-200.0, 200.0)
            )
            axis.fill_between(line["x"], low, high, color=style["color"], alpha=0.12, linewidth=0)
            axis.plot(line["x"], middle, marker=marker, markersize=3.5, markevery=2, **style)


def _draw_correlation(axis: Axes, table: pa.Table, marker: str) -> None:
    """β of the moved draft has the very correlation of the 2-gram's."""
    for of, line in groups(table, "of").items():
        if of == "acceptance" or marker == DRAFTS[0]:
            axis.plot(line["x"], line["value"], marker=marker, markersize=3.5, **CORRELATED[of])
    axis.axhspan(-2.0 * line["error"][0], 2.0 * line["error"][0], color=BAND, linewidth=0)


def _draw_best(axis: Axes, table: pa.Table, weights: list[float]) -> None:
    """A group for each c and draft: the measured best, then by each α, with a loss of 1 % of improvement or
    more."""
    best, lost = (where(table, quantity=name) for name in ("best gamma", "improvement lost"))
    ticks: list[tuple[float, str]] = []
    found: dict[str, list[tuple[float, float]]] = {}
    for group, weight in enumerate(weights):
        here, there = groups(where(best, weight=weight), "c"), groups(where(lost, weight=weight), "c")
        for number, (c, column) in enumerate(here.items()):
            middle = group * (len(here) + 0.6) + number
            ticks.append((middle, f"{c:g}"))
            for place, (of, gamma, loss) in enumerate(
                zip(column["of"], column["value"], there[c]["value"], strict=True)
            ):
                x = middle + 0.17 * (place - 1.5)
                found.setdefault(of, []).append((x, gamma))
                if loss >= 0.01:
                    text = f"-{100 * loss:.1f} %"
                    axis.text(x + 0.2, gamma + 0.8, text, rotation=90, ha="center", va="bottom", fontsize=7)
    for (of, places), marker in zip(found.items(), "o^vD", strict=True):
        color = ALPHAS[of]["color"] if of in ALPHAS else "black"
        axis.plot(*zip(*places, strict=True), marker, color=color, markersize=4.0)
    axis.set_xticks(*zip(*ticks, strict=True))
    largest = int(max(best["value"].to_pylist()))
    axis.set_ylim(0.0, largest + 2.0)
    axis.set_yticks(range(0, largest + 1, 4))
    axis.grid(axis="x", visible=False)
    axis.set_xlabel(f"c; {' (left), '.join(_names(weights))} (right)")
    axis.set_ylabel("γ")
    axis.set_title("best γ; in %: the improvement lost")
