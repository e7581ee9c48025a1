"""Plans: the best γ by Theorem 3.8, from a rate or a log; drafts ranked; the command."""

import numpy as np
import pytest
from commands import run
from matplotlib.figure import Figure

from specsim.planning._plan import Candidate, plan, rank_drafts
from specsim.theory import operations_factor, optimal_gamma, walltime_improvement
from specsim.traces import default_trace, summarise


@pytest.mark.parametrize(("alpha", "c"), [(0.8, 0.05), (0.6, 0.1), (0.95, 0.01), (0.1, 0.3)])
def test_a_plan_is_the_theorems(alpha, c):
    found = plan(alpha, c, max_gamma=200)
    best = optimal_gamma(alpha, c)
    assert found.best.gamma == best
    assert found.best.improvement == pytest.approx(walltime_improvement(alpha, best, c))
    assert found.best.operations == pytest.approx(operations_factor(alpha, best, c))
    assert plan(alpha, c, c_hat=0.0).choices[3].operations == pytest.approx(operations_factor(alpha, 3, 0.0))
    assert [choice.gamma for choice in found.choices] == list(range(201))


def test_what_a_wrong_guess_costs():
    found = plan(0.8, 0.05)
    by_name = {shift.what: shift for shift in found.sensitivity}
    assert list(by_name) == ["α -0.05", "α +0.05", "c /1.5", "c ·1.5"]
    for what, alpha, c in (("α +0.05", 0.85, 0.05), ("c ·1.5", 0.8, 0.075)):
        shift = by_name[what]
        assert shift.gamma == optimal_gamma(alpha, c)
        assert shift.kept == pytest.approx(walltime_improvement(alpha, found.best.gamma, c))
        assert shift.kept <= shift.improvement


def test_rates_by_position_are_taken_as_they_are_and_the_last_goes_on():
    found = plan([0.9, 0.5], 0.02, max_gamma=4)
    assert [choice.tokens_per_step for choice in found.choices] == pytest.approx(
        [1.0, 1.9, 1.9 + 0.45, 2.35 + 0.225, 2.575 + 0.1125]
    )
    assert found.measured == 2
    falling, steady = plan([0.9, 0.8, 0.5, 0.2], 0.05), plan(0.6, 0.05)
    assert falling.best.gamma < plan(0.9, 0.05).best.gamma
    assert steady.best.gamma == optimal_gamma(0.6, 0.05)


def test_drafts_are_ranked_by_what_they_gain():
    ranked = rank_drafts(
        [
            Candidate.of_counts("large", 8200, 10_000, 0.11),
            Candidate.of_counts("small", 7500, 10_000, 0.02),
            Candidate.of_counts("small, few tests", 8, 10, 0.02),
        ]
    )
    assert [one.candidate.name for one in ranked] == ["small, few tests", "small", "large"]
    few, small, large = ranked
    assert few.high - few.low > 5 * (small.high - small.low)
    assert not small.surely_worse  # ten tests are not enough to say
    assert rank_drafts([small.candidate, large.candidate])[1].surely_worse
    assert few.low < few.improvement < few.high


def test_a_plan_from_a_trace_has_its_own_rates():
    summary = summarise(default_trace())
    found = plan(summary.alpha_by_position, 0.05)
    assert found.measured == 4
    assert found.choices[4].tokens_per_step == pytest.approx(summary.tokens_per_step)
    candidate = Candidate.of_trace("n-gram", summary, 0.05)
    assert candidate.low < candidate.alpha < candidate.high


def test_a_plan_is_drawn_with_its_range_and_its_best_gamma(tmp_path):
    axes = plan([0.9, 0.5], 0.05, max_gamma=6).plot(Figure().subplots())
    choices = plan([0.9, 0.5], 0.05, max_gamma=6).choices
    known, beyond, best, _ = axes.get_lines()
    assert [*known.get_ydata(), *beyond.get_ydata()[1:]] == [one.improvement for one in choices]
    assert best.get_label() == f"best γ = {best.get_xdata()[0]}: {best.get_ydata()[0]:.4g} times as fast"
    low, high = (
        [one.improvement for one in plan(alpha, 0.05, max_gamma=6).choices]
        for alpha in ([0.85, 0.45], [0.95, 0.55])
    )
    ends = axes.collections[0].get_paths()[0].vertices
    for end in (*enumerate(low), *enumerate(high)):
        assert np.isclose(ends, end).all(axis=1).any()
    assert "do not speculate" in plan(0.2, 0.3).plot(Figure().subplots()).get_lines()[1].get_label()
    assert "wrote" in run("plan", "--alpha", "0.8", "--c", "0.05", "-o", tmp_path / "plan.png").err


# --- the command -----------------------------------------------------------------------------------------


def test_a_best_gamma_beyond_the_log_says_so_and_a_bare_rate_names_its_meaning():
    out = run("plan", "--alpha", "by-position:0.766,0.545", "--c", "0.05").out
    assert "best, beyond the log" in out
    assert "; it lies beyond the log, whose best is γ = 2: 2.1009\n" in out
    assert "beyond" not in run("plan", "--alpha", "by-position:0.766,0.545", "--c", "0.5").out.splitlines()[0]
    asked = "if an engine printed it: acceptance-rate:51%,gamma="
    assert asked in run("plan", "--alpha", "51%", "--c", "0.05").out
    assert "acceptance-rate:RATE,gamma=DRAFTED" in run("plan", "--draft", "a=51%,0.1").out


def test_the_command_plans_from_a_trace_and_ranks_drafts():
    assert "beyond the log" in run("plan", "ngram-trace", "--c", "0.01").out
    drafts = "small=7500/10000,0.02", "large=8200/10000,0.11", f"logged={default_trace().path},0.05"
    lines = run("plan", *(word for draft in drafts for word in ("--draft", draft))).out.splitlines()
    assert [line.split()[0] for line in lines[2:5]] == ["small", "large", "logged"]
    assert "surely worse" in lines[3]
