"""How figures look: series that colour alone does not tell apart, titles in one line, legends beside the data,
texts that can be read in print."""

import re
from pathlib import Path

import numpy as np
import pytest
from looks import broken_titles, confused, covered, cut_texts, laid_on, texts
from matplotlib.figure import Figure

import figures
from experiments._tables import read_table, table
from figures._palette import mark
from specsim import acceptance_by_drafts, audit, compare, plan, simulate, sweep
from specsim.core._plotting import COLORS, curve, figure_style, points
from specsim.planning._measured import plan_speeds
from specsim.simulation._comparison import drafts_figure, pareto_figure
from specsim.traces import summarise

ARTICLE = (Path(__file__).parents[2] / "paper/paper.tex").read_text(encoding="utf-8")
#: Inches between the margins of the article: A4 with margins of 2.1 cm.
LINE = (21.0 - 2 * 2.1) / 2.54
#: The least size of text in print, in points.
READABLE = 7.0
P, Q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.3, 0.5])


@pytest.fixture(scope="module")
def draw(made):
    """A figure from its fast tables: draw("precision")."""

    def of(name, **given):
        module = figures.get(name)
        return module.draw(
            *(read_table(source, made[0] / "tables", fast=True) for source in module.TABLES), **given
        )

    return of


def assert_clear(figure):
    """No series by colour alone, no title broken, no text cut, on another or too small, no legend on data."""
    assert confused(figure) == []
    assert broken_titles(figure) == []
    assert cut_texts(figure) == []
    assert laid_on(figure) == []
    assert covered(figure) == []
    assert min(text.get_fontsize() for text in texts(figure)) >= READABLE


@pytest.mark.parametrize("name", figures.names())
def test_every_figure_is_clear(draw, name):
    figure = draw(name)
    mark(figure)
    assert_clear(figure)


def test_the_overview_for_dark_pages_is_clear(draw):
    assert_clear(draw("overview", page="dark"))


def test_a_figure_of_closed_forms_is_clear(tmp_path):
    name = "leviathan_figure_3"
    assert_clear(figures.get(name).draw(table(name, tmp_path, fast=True)))


def test_figures_of_the_article_are_printed_in_their_size(draw):
    """They are included without a width, so a text has in print the size that it is drawn with."""
    included = re.findall(r"\\includegraphics(\[[^\]]*\])?\{(\w+)\}", ARTICLE)
    assert len(included) >= 9
    for options, name in included:
        assert options == ""
        assert draw(name).get_figwidth() <= LINE


# --- results ---------------------------------------------------------------------------------------------


#: What is plotted of a result, given a trace.
PLOTTED = {
    "simulation": lambda _: simulate(P, Q, steps=100, rng=1),
    "comparison": lambda _: compare(P, Q, rules=["standard", "block", "k_seq", "lenience"], steps=50, rng=1),
    "sweep": lambda _: sweep(
        P, Q, over={"gamma": [1, 2, 3], "temperature": [0.5, 1.0, 1.5]}, steps=50, rng=1
    ),
    "trace": summarise,
    "plan": lambda _: plan([0.9, 0.7, 0.5], 0.05),
    "measured plan": lambda _: plan_speeds([(0, "", "", 36), (1, "acceptance_rate", "47%", 47.8)]),
    "audit": lambda _: audit("standard", cases=["two-point"], level="smoke", rng=1),
}


@pytest.mark.parametrize("name", PLOTTED)
def test_the_plot_of_a_result_does_not_depend_on_colour(small_trace, smaller_audits, name):
    figure = PLOTTED[name](small_trace).plot().figure
    assert confused(figure) == []
    assert laid_on(figure) == []
    assert sum(len(axis.get_lines()) for axis in figure.axes) > 0


def test_the_pictures_of_a_comparison_are_clear():
    names = ["standard", "block", "k_seq", "lenience", "typical"]
    assert_clear(pareto_figure(compare(P, Q, rules=names, sweep=True, steps=50, rng=1)))
    assert_clear(drafts_figure(acceptance_by_drafts(P, Q, 3, steps=50, rng=1), "a pair"))


# --- what is not clear is seen ---------------------------------------------------------------------------


def picture(*styles, label=True, **legend):
    """A figure of a line for each of `styles`, one above the other."""
    with figure_style():
        figure = Figure(figsize=(4.0, 3.0))
        axis = figure.subplots()
        for number, style in enumerate(styles):
            axis.plot([0, 1, 2], [number, number + 1, number], label=f"{number}" if label else None, **style)
        if legend:
            axis.legend(**legend)
        return figure


def test_series_that_differ_in_dashes_or_markers_are_told_apart():
    assert confused(picture(curve(0), curve(1))) == []
    assert confused(picture(points(0), points(1), loc="best")) == []
    assert confused(picture(*({"marker": "o", "fillstyle": fill} for fill in ("full", "none")))) == []


@pytest.mark.parametrize("label", [True, False])
@pytest.mark.parametrize("style", [{"linestyle": "-"}, {"linestyle": "none", "marker": "o"}])
def test_series_that_differ_in_colour_alone_are_seen(style, label):
    assert confused(picture(*({"color": color} | style for color in COLORS[:2]), label=label))


def test_error_bars_that_differ_in_colour_alone_are_seen():
    figure = Figure()
    axis = figure.subplots()
    for color in COLORS[:2]:
        axis.errorbar([0, 1], [0, 1], yerr=1.0, fmt="o", color=color, label=color)
    assert (COLORS[0], COLORS[1]) in confused(figure)


def test_a_broken_title_is_seen():
    figure = picture(curve(0))
    assert broken_titles(figure) == []
    figure.axes[0].set_title("tokens per step\nagainst α")
    assert len(broken_titles(figure)) == 1
    figure.axes[0].set_title("expected tokens per step against the acceptance probability α " * 2)
    assert cut_texts(figure)


def test_a_legend_on_the_data_is_seen():
    assert covered(picture(curve(0), curve(1), loc="center"))
    assert covered(picture(curve(0), curve(1), loc="upper left")) == []
    figure = picture(curve(0), loc="upper left")
    figure.axes[0].bar([0.2], [1.2], width=0.4)
    assert covered(figure)


@pytest.mark.parametrize(("x", "y", "seen"), [(0.5, 0.6, False), (0.99, 0.99, True), (0.95, 0.2, True)])
def test_a_text_on_a_marker_or_on_another_text_is_seen(x, y, seen):
    axis = picture(points(0)).axes[0]
    axis.text(0.9, 0.2, "-15.5 %")
    assert laid_on(axis.figure) == []
    axis.text(x, y, "-5.5 %", ha="right")
    assert bool(laid_on(axis.figure)) == seen
