"""What independence gets wrong along a text: tokens per step, its overstatement, autocorrelation, and the
best γ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from figures._columns import groups, where
from figures._palette import COLORS, GREY
from specsim.core._plotting import figure_style, heading

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLE = "Acceptances along a text are not independent: tokens per step measured, and by the i.i.d. formula"
TABLES = ("iid_gap",)

#: A colour for each α that the formula is fed with.
ALPHAS = {"alpha_context": COLORS[0], "alpha_verified": COLORS[1], "alpha_drafted": COLORS[2]}
#: A line style and a marker for each draft, in the order of the table.
DRAFTS: tuple[tuple[Any, str], ...] = (("-", "o"), ("--", "s"))


def draw(table: pa.Table) -> Figure:
    """Tokens per step and overstatement against γ, autocorrelation against the lag, and the best γ for each
    c; solid and round for the 2-gram draft, dashed and square for the one moved towards its target. Bars and
    bands are two standard errors.
    """
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    with figure_style():
        figure = Figure(figsize=(8.6, 6.8))
        axes = figure.subplots(2, 2)
        weights = list(groups(table, "weight"))
        for weight, (style, marker) in zip(weights, DRAFTS, strict=True):
            part = where(table, weight=weight)
            _draw_tokens(axes[0, 0], where(part, quantity="tokens per step"), style, marker)
            _draw_overstatement(axes[0, 1], where(part, quantity="overstatement"), style, marker)
            _draw_correlation(axes[1, 0], where(part, quantity="autocorrelation"), style, marker)
        _draw_best(axes[1, 1], table, weights)
        axes[0, 0].set_title("tokens per step: measured (points), formula (lines)")
        axes[0, 1].set_title("formula / measured - 1, %")
        axes[0, 1].axhline(0.0, color="black", linewidth=1.0)
        for axis in axes[0]:
            axis.set_xlabel("drafted tokens γ")
            axis.set_xticks([1, 4, 8, 12, 16, 20, 24])
        axes[0, 0].set_ylim(1.0, None)
        axes[1, 0].set_title("autocorrelation; band: ±2 s.e. if independent")
        axes[1, 0].set_xlabel("lag along the text, tokens")
        axes[1, 0].set_xticks([1, 5, 10, 15, 20])
        axes[1, 0].legend(loc="upper right")
        handles = [
            *(
                Line2D([], [], color=color, label=name.replace("_", " ").replace("alpha", "α"))
                for name, color in ALPHAS.items()
            ),
            Line2D([], [], color="black", linestyle="", marker="o", label="measured"),
            Line2D(
                [], [], color="black", linestyle="", marker="o", fillstyle="none", label="steps from anywhere"
            ),
            *(
                Line2D([], [], color=GREY, linestyle=style, marker=marker, fillstyle="none", label=label)
                for (style, marker), label in zip(DRAFTS, _names(weights), strict=True)
            ),
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=-(-len(handles) // 2))
        heading(figure, TITLE)
        return figure


def _names(weights: list[float]) -> list[str]:
    return [f"draft moved by {weight:g}" if weight else "2-gram draft" for weight in weights]


def _draw_tokens(axis: Axes, table: pa.Table, style: str, marker: str) -> None:
    for of, line in groups(table, "of").items():
        if of in ALPHAS:
            axis.plot(line["x"], line["value"], color=ALPHAS[of], linestyle=style)
        elif of == "anywhere":
            axis.plot(line["x"], line["value"], marker, color="black", markersize=3.5, fillstyle="none")
        else:
            errors = [2.0 * error for error in line["error"]]
            axis.errorbar(line["x"], line["value"], yerr=errors, fmt=marker, color="black", markersize=3.5)


def _draw_overstatement(axis: Axes, table: pa.Table, style: str, marker: str) -> None:
    """alpha_drafted is far below, and left out."""
    for of, line in groups(table, "of").items():
        if of != "alpha_drafted":
            middle = [100.0 * value for value in line["value"]]
            low, high = (
                [value + sign * error for value, error in zip(middle, line["error"], strict=True)]
                for sign in (-200.0, 200.0)
            )
            axis.fill_between(line["x"], low, high, color=ALPHAS[of], alpha=0.12, linewidth=0)
            axis.plot(line["x"], middle, color=ALPHAS[of], linestyle=style, marker=marker, markersize=3.0)


def _draw_correlation(axis: Axes, table: pa.Table, style: str, marker: str) -> None:
    """β of the moved draft has the very correlation of the 2-gram's."""
    for (of, line), color in zip(groups(table, "of").items(), COLORS[3:], strict=True):
        if style == "-" or of == "acceptance":
            label = of if of == "β" else f"{of}, {'2-gram draft' if style == '-' else 'draft moved'}"
            axis.plot(
                line["x"],
                line["value"],
                color=color,
                linestyle=style,
                marker=marker,
                markersize=3.0,
                label=label,
            )
    axis.axhspan(-2.0 * line["error"][0], 2.0 * line["error"][0], color="#dfe8f0", linewidth=0)


def _draw_best(axis: Axes, table: pa.Table, weights: list[float]) -> None:
    """A group of bars for each c and draft: the measured best, then by each α, with the improvement that it
    loses.
    """
    from matplotlib.ticker import MaxNLocator

    best, lost = (where(table, quantity=name) for name in ("best gamma", "improvement lost"))
    ticks, colors = [], {"measured": "black", **ALPHAS}
    for group, weight in enumerate(weights):
        here, there = groups(where(best, weight=weight), "c"), groups(where(lost, weight=weight), "c")
        for number, (c, column) in enumerate(here.items()):
            middle = group * (len(here) + 0.6) + number
            ticks.append((middle, f"{c:g}"))
            for place, (of, gamma, loss) in enumerate(
                zip(column["of"], column["value"], there[c]["value"], strict=True)
            ):
                x = middle + 0.2 * (place - 1.5)
                axis.bar(x, gamma, width=0.18, color=colors[of])
                if loss > 0.0005:
                    axis.text(
                        x,
                        gamma + 0.3,
                        f"-{100 * loss:.1f} %",
                        rotation=90,
                        ha="center",
                        va="bottom",
                        fontsize=7,
                    )
    axis.set_xticks(*zip(*ticks, strict=True))
    axis.margins(y=0.2)
    axis.yaxis.set_major_locator(MaxNLocator(integer=True))
    axis.grid(axis="x", visible=False)
    axis.set_xlabel(f"c, for the {' (left) and the '.join(_names(weights))} (right)")
    axis.set_title("best γ, and the improvement lost")
