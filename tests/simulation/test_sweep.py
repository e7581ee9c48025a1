"""Sweeps: a table with error bars, and one plot."""

import numpy as np
import pytest
from matplotlib.figure import Figure
from refused import refuses

import specsim
from specsim import default_pair, sweep
from specsim.core.distributions import temperature
from specsim.models import Pair, TableModel
from specsim.traces import default_trace

P, Q = [0.5, 0.3, 0.2], [0.2, 0.3, 0.5]


def test_each_run_is_that_of_simulate_with_the_same_seed():
    found = sweep(P, Q, rule="lenience", over={"lenience": [0.5, 1], "gamma": [2, 3]}, steps=2000, rng=4)
    assert found.settings == ((0.5, 2), (0.5, 3), (1, 2), (1, 3))
    for (lenience, gamma), run in zip(found.settings, found.runs, strict=True):
        rule = f"lenience:lenience={lenience}"
        assert run == specsim.simulate(P, Q, rule=rule, gamma=gamma, steps=2000, rng=4)
    rows = found.records()
    assert [row["tv"] for row in rows] == pytest.approx([0.2, 0.2, 0, 0], abs=1e-12)
    assert [row["tokens_per_step"] for row in rows] == [run.tokens_per_step for run in found.runs]
    assert found.to_arrow().column_names[:2] == ["lenience", "gamma"]


def test_error_bars_cover_the_closed_form():
    """At 40 points within 4 standard errors; bars of a tenth of the size would miss one surely enough."""
    rows = sweep(P, Q, over={"gamma": list(range(1, 41))}, steps=20_000, rng=1).records()
    theory = [specsim.theory.expected_tokens(0.7, row["gamma"]) for row in rows]
    errors = [row["tokens_per_step_error"] for row in rows]
    off = np.abs([row["tokens_per_step"] for row in rows] - np.array(theory)) / errors
    assert off.max() < 4
    assert (off > 0.4).any(), "errors ten times too small would be noticed"
    alphas = [(row["alpha_verified"] - 0.7) / row["alpha_verified_error"] for row in rows]
    assert 0.1 < np.abs(alphas).max() < 4


def test_the_error_of_alpha_verified_is_its_spread_over_seeds():
    runs = [specsim.simulate(P, Q, gamma=4, steps=500, rng=seed) for seed in range(200)]
    spread = np.std([run.alpha_verified for run in runs], ddof=1)
    claimed = np.mean([run.alpha_verified_error for run in runs])
    # the spread of 200 runs is within a fifth of the truth, with probability .9999
    assert spread == pytest.approx(claimed, rel=0.2)
    assert np.isnan(specsim.simulate(P, Q, steps=1, rng=1).alpha_verified_error)


def test_alpha_against_temperature():
    cold, usual = sweep(*default_pair(), over={"temperature": [0.5, 1.0]}, steps=500, rng=1).records()
    assert usual["alpha_context"] == pytest.approx(
        specsim.simulate(*default_pair(), steps=1, rng=1).alpha_context
    )
    pmfs = sweep(P, Q, over={"temperature": [0.5], "top_k": [2]}, steps=10, rng=1).records()[0]
    p, q = (specsim.distributions.top_k(temperature(one, 0.5), 2) for one in (P, Q))
    assert pmfs["alpha_context"] == pytest.approx(np.minimum(p, q).sum())
    assert cold["alpha_context"] != usual["alpha_context"]


def test_rules_can_be_swept_and_are_named(tmp_path):
    found = sweep(
        P, Q, over={"rule": ["standard", "lenience", "pointwise_envelope"]}, gamma=2, steps=50, rng=1
    )
    assert [row["tv"] for row in found.records()] == [0.0, pytest.approx(0.2), None]
    assert "pointwise_envelope" in str(found)
    some = [specsim.rules.get("lenience:lenience=0.5"), "standard"]
    found = sweep(P, Q, over={"rule": some}, steps=100, rng=1)
    assert found.over == {"rule": ("lenience:lenience=0.5", "standard")}
    assert found == sweep(P, Q, over=found.over, steps=100, rng=1)
    found.save(tmp_path / "sweep.json")
    assert specsim.load(tmp_path / "sweep.json") == found
    assert found.to_csv().splitlines()[1].startswith("lenience:lenience=0.5,")
    assert found.plot().get_xlabel() == "rule"


def test_the_plot_has_a_line_for_each_other_setting():
    found = sweep(P, Q, rule="lenience", over={"lenience": [0.5, 1.0], "gamma": [2, 3]}, steps=500, rng=1)
    axes = found.plot(Figure().subplots())
    lines = [container.lines[0] for container in axes.containers]
    assert [line.get_xdata().tolist() for line in lines] == [[0.5, 1.0]] * 2
    expected = [
        [row["tokens_per_step"] for row in found.records() if row["gamma"] == gamma] for gamma in (2, 3)
    ]
    assert [line.get_ydata().tolist() for line in lines] == expected
    assert axes.get_xlabel() == "lenience"
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["γ = 2", "γ = 3"]
    other = found.plot(Figure().subplots(), x="gamma")
    assert [one.lines[0].get_xdata().tolist() for one in other.containers] == [[2, 3]] * 2
    assert (other.get_xlabel(), other.get_legend().get_texts()[0].get_text()) == ("γ", "lenience = 0.5")
    refuses("did you mean 'gamma'", found.plot, x="gama")
    assert found.plot(Figure().subplots(), y="tv").get_ylabel() == "total variation"
    refuses("did you mean 'alpha_verified'", found.plot, y="alpha_verifid")


def test_a_trace_can_be_swept_over_gamma_and_not_over_temperature(tmp_path):
    trace = specsim.decoding.record(
        tmp_path / "trace", TableModel(P), TableModel(Q), gamma=3, steps=20, rng=1
    )
    found = sweep(trace, over={"gamma": [1, 3]}, steps=200, rng=1)
    assert [row["tv"] for row in found.records()] == [0.0, 0.0]
    refuses("a trace has no rows at another temperature", sweep, trace, over={"temperature": [0.5]}, steps=10)
    with pytest.raises(ValueError, match="16 tokens a row"):
        sweep(default_trace(), over={"gamma": [1]}, steps=10)


def test_ctrl_c_gives_the_runs_so_far():
    def interrupt(done, total):
        if done == 2:
            raise KeyboardInterrupt

    found = sweep(P, Q, over={"gamma": [1, 2, 3]}, steps=100, rng=1, progress=interrupt)
    assert found.interrupted
    assert [row["gamma"] for row in found.records()] == [1, 2]
    assert "interrupted after 2 of 3 runs" in str(found)
    whole = sweep(P, Q, over={"gamma": [1, 2, 3]}, steps=100, rng=1)
    assert (whole.runs[:2], whole.interrupted) == (found.runs, False)


def test_the_name_of_a_pair_says_how_it_was_sampled():
    found = sweep(specsim.read_pair("zipf:vocab_size=20"), over={"temperature": [0.5]}, steps=100, rng=1)
    (run,) = found.runs
    assert run.pair.name == "zipf:vocab_size=20,temperature=0.5"
    assert specsim.rerun(run) == run
    cold = specsim.read_pair("zipf:vocab_size=20,temperature=0.5")
    (run,) = sweep(cold, over={"top_p": [0.9]}, steps=100, rng=1).runs
    assert specsim.rerun(run) == run
    for setting in ({"temperature": [2.0]}, {"top_p": [0.9], "temperature": [2.0]}):
        with pytest.raises(
            ValueError, match="over: temperature comes before the temperature of zipf:vocab_size=20,t"
        ):
            sweep(cold, over=setting, steps=100, rng=1)
    assert sweep(Pair(P, Q), over={"top_k": [2]}, steps=10, rng=1).runs[0].pair.name is None
