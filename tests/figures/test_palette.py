"""The palette: its colours differ in deficient vision too, and the style has the same colours and dashes."""

import re
from pathlib import Path

import matplotlib as mpl
import pytest
from cases import cases
from color_vision import VISIONS, ciede2000, lab, least_difference

from figures._palette import VERDICTS
from specsim.auditing._report import audit
from specsim.core import _report
from specsim.core._plotting import COLORS, DARK_COLORS, LINES, MARKERS, curve, figure_style, points

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


@pytest.mark.parametrize(*cases(__file__, "differences"))
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
    assert audit.COLORS.items() >= dict(zip(COLORS, SERIES, strict=False)).items()
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
