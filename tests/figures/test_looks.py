"""How figures look: series that colour alone does not tell apart, titles in one line, legends beside the data,
texts that can be read in print."""

import re
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from color_vision import VISIONS, ciede2000, lab, least_difference
from looks import broken_titles, confused, covered, cut_texts, texts
from matplotlib.figure import Figure

import figures
from experiments._tables import read_table, table
from figures._palette import VERDICTS
from specsim import acceptance_by_drafts, audit, compare, simulate, sweep
from specsim.auditing._report import html
from specsim.core import _report
from specsim.core._plotting import COLORS, DARK_COLORS, LINES, MARKERS, curve, figure_style, points
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
    """No series by colour alone, no title broken, no text cut, no legend on the data, no text too small."""
    assert confused(figure) == []
    assert broken_titles(figure) == []
    assert cut_texts(figure) == []
    assert covered(figure) == []
    assert min(text.get_fontsize() for text in texts(figure)) >= READABLE


@pytest.mark.parametrize("name", figures.names())
def test_every_figure_is_clear(draw, name):
    assert_clear(draw(name))


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
    "comparison": lambda _: compare(P, Q, rules=["standard", "k_seq", "lenience"], steps=50, rng=1),
    "sweep": lambda _: sweep(
        P, Q, over={"gamma": [1, 2, 3], "temperature": [0.5, 1.0, 1.5]}, steps=50, rng=1
    ),
    "trace": summarise,
    "audit": lambda _: audit("standard", cases=["two-point"], level="smoke", rng=1),
}


@pytest.mark.parametrize("name", PLOTTED)
def test_the_plot_of_a_result_does_not_depend_on_colour(small_trace, smaller_audits, name):
    figure = PLOTTED[name](small_trace).plot().figure
    assert confused(figure) == []
    assert sum(len(axis.get_lines()) for axis in figure.axes) > 0


def test_the_pictures_of_a_comparison_are_clear():
    names = ["standard", "block", "k_seq", "lenience", "typical"]
    found = compare(P, Q, rules=names, sweep=True, steps=50, rng=1)
    assert_clear(pareto_figure(found))
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
    assert len(broken_titles(figure)) == 1
    assert cut_texts(figure)


def test_a_legend_on_the_data_is_seen():
    assert covered(picture(curve(0), curve(1), loc="center"))
    assert covered(picture(curve(0), curve(1), loc="upper left")) == []
    figure = picture(curve(0), loc="upper left")
    figure.axes[0].bar([0.2], [1.2], width=0.4)
    assert covered(figure)


#: The least difference of two colours in CIEDE2000. About 1 is just noticeable side by side.
LEAST = 10.0
#: The colours of the page of an audit: of series, which its figures draw, and of verdicts.
SERIES, TONES = ("--blue", "--orange", "--green"), ("--good", "--fair", "--bad")
PAGE = (Path(_report.__file__).parent / "page.css").read_text(encoding="utf-8")
LIGHT, DARK, PRINT = (
    dict(re.findall(r"(--\w+): (#\w{6}|#\w{3});", block)) for block in PAGE.split(":root")[1:]
)
PALETTES = {
    "light": COLORS, "dark": DARK_COLORS, "verdicts": [color for color, _ in VERDICTS.values()],
    "page, light": [LIGHT[name] for name in TONES], "page, dark": [DARK[name] for name in TONES],
}  # fmt: skip
#: The colours that figures had before: not distinguishable with protanopia or with deuteranopia.
FORMER = {
    "light": ("#2a5c8a", "#d1793b", "#4f8f5b", "#9b5a8c", "#b8a13a"),
    "dark": ("#6ea8dc", "#e6975c", "#7cbf88", "#c58ab6", "#d4bf5e"),
}


@pytest.mark.parametrize("vision", VISIONS)
@pytest.mark.parametrize("palette", PALETTES)
def test_two_colours_of_a_palette_differ(palette, vision):
    assert least_difference(PALETTES[palette], vision) >= LEAST


@pytest.mark.parametrize("vision", ["protanopia", "deuteranopia"])
@pytest.mark.parametrize("palette", FORMER)
def test_the_former_palettes_would_fail(palette, vision):
    assert least_difference(FORMER[palette], vision) < 0.8 * LEAST
    assert least_difference(FORMER[palette], "normal") > 2 * LEAST


@pytest.mark.parametrize(
    ("one", "other", "difference"),
    [
        ((50, 2.6772, -79.7751), (50, 0, -82.7485), 2.0425),
        ((50, -1.3802, -84.2814), (50, 0, -82.7485), 1.0),
        ((50, 2.5, 0), (50, 0, -2.5), 4.3065),
        ((60.2574, -34.0099, 36.2677), (60.4626, -34.1751, 39.4387), 1.2644),
        ((22.7233, 20.0904, -46.694), (23.0331, 14.973, -42.5619), 2.0373),
        ((2.0776, 0.0795, -1.135), (0.9033, -0.0636, -0.5514), 0.9082),
    ],
)
def test_differences_are_those_of_the_test_data_of_sharma_wu_and_dalal(one, other, difference):
    assert ciede2000(one, other) == pytest.approx(difference, abs=5e-5)


def test_white_and_grey_stay_the_same_in_each_vision():
    for vision in VISIONS:
        assert lab("#ffffff", vision) == pytest.approx((100, 0, 0), abs=0.02)
        assert ciede2000(lab("#808080", vision), lab("#808080")) < 0.1


def test_the_cycle_of_the_style_has_the_colours_and_dashes_of_series():
    with figure_style():
        cycle = mpl.rcParams["axes.prop_cycle"].by_key()
        assert mpl.rcParams["pdf.fonttype"] == 42
    assert tuple(cycle["color"]) == COLORS
    assert tuple(cycle["linestyle"]) == LINES
    numbers = range(len(COLORS))
    assert [curve(number) for number in numbers] == [
        {"color": color, "linestyle": line} for color, line in zip(COLORS, LINES, strict=True)
    ]
    assert [points(number)["marker"] for number in numbers] == list(MARKERS)
    assert len(set(MARKERS)) == len(set(map(str, LINES))) == len(set(COLORS)) == len(numbers)


def test_the_page_of_an_audit_has_the_palette_in_light_in_dark_and_on_paper():
    assert html.COLORS.items() >= dict(zip(COLORS, SERIES, strict=False)).items()
    for page, palette in ((LIGHT, COLORS), (PRINT, COLORS), (DARK, DARK_COLORS)):
        assert tuple(page[name] for name in SERIES) == palette[: len(SERIES)]
    assert [PRINT[name] for name in TONES] == [LIGHT[name] for name in TONES]


def luminance(color):
    """Relative luminance as WCAG 2 defines it."""
    coded = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in coded]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one, other):
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("page", [LIGHT, DARK], ids=["light", "dark"])
def test_text_and_lines_of_the_page_can_be_read(page):
    """The contrasts that WCAG 2 asks for: 4.5 of text, 3 of graphics."""
    for name in ("--ink", "--soft", "--blue", *TONES):
        assert contrast(page[name], page["--paper"]) >= 4.5
        assert contrast(page[name], page["--raised"]) >= 4.5
    for name in SERIES:
        assert contrast(page[name], page["--paper"]) >= 3.0
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
