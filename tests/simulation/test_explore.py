"""The sliders of `explore`: what they draw is what is simulated."""

import numpy as np
import pytest

from specsim import explore, sweep
from specsim.core import _progress
from specsim.models import Pair
from specsim.simulation import _explore

PAIR = Pair([0.5, 0.3, 0.2], [0.2, 0.3, 0.5])


@pytest.fixture
def moved(monkeypatch):
    """moved(name=value): what is drawn when a slider is moved, as (sweep, γ, c); and how many pictures were."""
    drawn = []
    draw = _explore._png
    monkeypatch.setattr(_explore, "_png", lambda *given: drawn.append(given) or draw(*given))
    *sliders, picture = explore(PAIR, steps=500, rng=1).children
    named = {slider.description: slider for slider in sliders}

    def move(**values):
        for name, value in values.items():
            named[name].value = value
        assert bytes(picture.value).startswith(b"\x89PNG")
        return drawn[-1], len(drawn)

    return move


def test_what_is_drawn_follows_the_sliders(moved):
    (found, gamma, c), count = moved()
    assert (gamma, c, count) == (5, 0.05, 1)
    assert found.records() == sweep(PAIR, over={"gamma": _explore.GAMMAS}, steps=500, rng=1).records()
    (later, gamma, c), count = moved(γ=8, c=0.2)
    assert (gamma, c, count) == (8, pytest.approx(0.2), 3)
    assert later is found  # nothing was simulated for these
    (lenient, *_), _ = moved(rule="lenience", lenience=0.3)
    assert {run.rule for run in lenient.runs} == {"lenience:lenience=0.3"}
    assert lenient.tvs[0] > 0
    (cold, *_), _ = moved(rule="standard", temperature=0.5)
    assert np.allclose([run.alpha_context for run in cold.runs], 4 / 38 + 9 / 38 + 4 / 38)
    assert moved(temperature=1.0)[0][0] is found


def test_a_lenience_moves_rules_that_have_one(moved):
    _, count = moved(lenience=0.25)
    assert count == 2
    assert moved()[0][0].runs[0].rule == "standard"
    assert moved(rule="scaled_lenience")[0][0].runs[0].rule == "scaled_lenience:lenience=0.25"


def test_a_line_says_what_goes_on_before_the_first_picture(monkeypatch, capsys):
    monkeypatch.setattr(_progress, "_watched", lambda: True)
    explore(PAIR, steps=500, rng=1)
    first, *_, last = capsys.readouterr().err.split("\r")[1:]
    assert (first.startswith("compiling: "), last.strip()) == (True, "")
