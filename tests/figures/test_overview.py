"""The picture of the front page: what it draws is in its tables, and the files in docs/_static are drawn by
this code."""

import re
from itertools import product
from pathlib import Path

import pyarrow as pa
import pytest

from experiments.literature import simulated_speed
from experiments.simulation import lossy_speed
from figures import overview

FOLDER = Path(__file__).parents[2] / "docs/_static"


@pytest.fixture(scope="module")
def tables():
    """The two tables with few rows, lines of `lossy_speed` that the picture leaves out included."""
    speed = [
        {
            "kind": kind,
            "gamma": gamma,
            "alpha": alpha,
            "c": 0.05,
            **{name: gamma + alpha + 0.001 * place for place, name in enumerate(overview.QUANTITIES)},
        }
        for kind in ("closed form", "simulated")
        for gamma in simulated_speed.GAMMAS
        for alpha in (0.5, 0.7, 0.9)
    ]
    lossy = [
        {"group": "lossy", "line": line, "rule": line, "chains": 1, "gamma": 5, "tokens": 2.0 + tv, "tv": tv}
        for line in (*overview.LOSSY, "standard", "greedy_lenience")
        for tv in (0.1, 0.2)
    ]
    lossless = [
        {"group": "lossless", "line": rule, "rule": rule, "chains": 1 + number % 2, "gamma": 5}
        | {"tokens": 1.4 + 0.1 * number, "tv": 0.0}
        for number, rule in enumerate(lossy_speed.LOSSLESS)
    ]
    return [pa.Table.from_pylist(rows) for rows in (speed, lossy + lossless)]


def drawn_lines(axis):
    return [
        tuple(tuple(map(float, data)) for data in (line.get_xdata(), line.get_ydata()))
        for line in axis.get_lines()
    ]


def test_lines_and_points_are_the_tables(tables):
    *speeds, bias = overview.draw(*tables).axes
    for axis, quantity in zip(speeds, overview.QUANTITIES, strict=True):
        wanted = [
            ((0.5, 0.7, 0.9), tuple(row[quantity] for row in rows if row["gamma"] == gamma))
            for rows in [[row for row in tables[0].to_pylist() if row["kind"] == "simulated"]]
            for gamma in simulated_speed.GAMMAS
        ]
        assert sorted(drawn_lines(axis)) == sorted(2 * wanted)
    lines = [line for line in drawn_lines(bias) if line != ((), ())]
    assert lines.count(((0.1, 0.2), (2.1, 2.2))) == len(overview.LOSSY)
    points = {(row["tv"], row["tokens"]) for row in tables[1].to_pylist() if row["group"] == "lossless"}
    assert {(x, y) for (x, *more), (y, *_) in lines if not more} == points


def words(svg):
    """The texts of a picture that hold a letter: titles, labels and legends, without the numbers at the
    axes."""
    texts = re.findall(r"<text[^>]*>(.*?)</text>", svg, re.DOTALL)
    return sorted(text for text in texts if re.search("[a-zα-ω]", text))


def test_the_committed_pictures_are_drawn_by_this_code(tables, tmp_path):
    overview.write(tmp_path, *tables)
    for page, (picture, least) in product(overview.INK, {"overview": 20, "first": 6}.items()):
        name = f"{picture}-{page}.svg"
        committed = (FOLDER / name).read_text(encoding="utf-8")
        assert words(committed) == words((tmp_path / name).read_text(encoding="utf-8")), "run make overview"
        assert len(words(committed)) > least
        assert overview.INK[page] in committed
        assert all(color in committed for color in overview.LINES[page])
