"""Wall time, operations and the best γ; steps by position. What is printed of them: tests/figures."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specsim import simulate
from specsim.models import TableModel
from specsim.theory import (
    acceptance_rate,
    accepted_tokens,
    beam_acceptance,
    break_even,
    divergence,
    expected_tokens,
    expected_tokens_by_position,
    markov_steps,
    memory_access_factor,
    non_iterative_acceptance,
    optimal_gamma,
    oracle_improvement,
    walltime_improvement,
)


def test_memory_is_read_once_a_step():
    assert memory_access_factor(0.8, 5) * expected_tokens(0.8, 5) == pytest.approx(1.0)
    assert memory_access_factor(1.0, 3) == 0.25


def test_the_bisection_is_the_search_of_all():
    rng = np.random.default_rng(1)
    alphas, ratios = rng.uniform(0, 1, 300), rng.uniform(0, 0.5, 300)
    speeds = np.array([walltime_improvement(alphas, gamma, ratios) for gamma in range(41)])
    assert (optimal_gamma(alphas, ratios, max_gamma=40) == speeds.argmax(axis=0)).all()
    assert (
        optimal_gamma(1.0, 0.5) == optimal_gamma(0.3, 0.0, max_gamma=1000) or optimal_gamma(1.0, 0.5) == 1000
    )
    assert optimal_gamma(0.2, 0.3) == 0
    assert optimal_gamma(1.0, 0.2, max_gamma=7) == 7


@given(st.floats(0, 1), st.floats(0, 2))
@settings(max_examples=100, deadline=None)
def test_it_helps_iff_alpha_exceeds_c(alpha, c):
    best = optimal_gamma(alpha, c)
    found = break_even(alpha, c)
    assert found.helps == (alpha > c)
    if alpha > c + 1e-9:
        assert best >= 1
        assert walltime_improvement(alpha, best, c) >= found.improvement * (1 - 1e-12)
    if alpha < c - 1e-9:
        assert best == 0
        assert found.improvement == 1.0


def test_the_oracle_is_a_bound():
    alphas = np.linspace(0.05, 0.99, 40)
    for c in (0.01, 0.05, 0.1):
        best = optimal_gamma(alphas, c)
        assert (oracle_improvement(alphas, c) >= walltime_improvement(alphas, best, c)).all()
    gains = [
        oracle_improvement(0.9, c) / walltime_improvement(0.9, optimal_gamma(0.9, c), c)
        for c in (0.01, 0.02, 0.05, 0.1)
    ]
    assert [round(gain, 2) for gain in gains] == [1.23, 1.33, 1.48, 1.53]
    assert oracle_improvement(1.0, 0.25) == 4.0


def test_divergence_lenience_and_plain_rejection_of_one_pair():
    p, q = np.array([0.5, 0.3, 0.2, 0.0]), np.array([0.1, 0.3, 0.5, 0.1])
    assert divergence(p, q) == pytest.approx(1.0 - acceptance_rate(p, q))
    assert divergence(p, q) == pytest.approx(0.4)
    assert acceptance_rate(p, q, lenience=0.5) == pytest.approx(0.1 + 0.3 + 0.4)
    assert non_iterative_acceptance(p, q) == pytest.approx(0.2)
    assert non_iterative_acceptance(q, p) == 0.0
    assert non_iterative_acceptance(p, p) == 1.0
    rows = np.random.default_rng(3).dirichlet(np.ones(5), size=(2, 100))
    assert (non_iterative_acceptance(*rows) <= acceptance_rate(*rows)).all()


def test_a_beam_is_accepted_if_the_drafts_hold_it():
    p, q = [0.4, 0.3, 0.2, 0.1], [0.1, 0.4, 0.3, 0.2]
    assert [beam_acceptance(p, q, 1, drafted) for drafted in (1, 2, 3, 4)] == [0.0, 0.0, 0.0, 1.0]
    assert beam_acceptance([p, q], [p, p], 2, 2).tolist() == [1.0, 0.0]


def test_three_alphas_where_the_acceptance_rate_varies_from_step_to_step():
    """β is .3 or .95 throughout a step of five: neither mean is what the formula needs."""
    reached = np.mean([beta ** np.arange(6) for beta in (0.3, 0.95)], axis=0)
    tokens = expected_tokens_by_position(reached[1:] / reached[:-1])
    verified = reached[1:].sum() / reached[:-1].sum()
    assert round(tokens, 2) == 3.36
    assert round(expected_tokens(0.625, 5), 2) == 2.51
    assert round(expected_tokens(verified, 5), 2) == 3.64
    assert expected_tokens_by_position(np.full((3, 5), 0.8)) == pytest.approx([expected_tokens(0.8, 5)] * 3)


P = np.array([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.3, 0.3, 0.4]])
Q = np.array([[0.65, 0.2, 0.15], [0.3, 0.3, 0.4], [0.1, 0.9, 0.0]])


def test_markov_steps_of_one_row_are_independent():
    found = markov_steps(P[0], Q[0], 4)
    alpha = acceptance_rate(P[0], Q[0])
    assert found.tokens_per_step == pytest.approx(expected_tokens(alpha, 4))
    assert found.by_position == pytest.approx([alpha] * 4)
    assert found.alpha_context == pytest.approx(found.alpha_verified) == pytest.approx(alpha)


def test_markov_steps_are_those_of_enumeration():
    """From each context, weighted by how often a step begins there."""
    by_start = [accepted_tokens(P, Q, 3, start=(P[s], Q[s])).token for s in range(3)]
    assert min(by_start) + 1 < markov_steps(P, Q, 3).tokens_per_step < max(by_start) + 1
    one_step_each = markov_steps(P, Q, 1)
    assert one_step_each.by_position[0] == pytest.approx(one_step_each.alpha_drafted)


def test_markov_steps_are_what_a_long_text_gives(full):
    found = markov_steps(P, Q, 3)
    rng, context = np.random.default_rng(7), 0
    steps, accepted, tested = 40_000 if full else 10_000, 0, 0

    def draw(weights):
        return int((weights.cumsum() <= rng.random() * weights.sum()).sum())

    for _ in range(steps):
        for _ in range(3):
            x = draw(Q[context])
            tested += 1
            if rng.random() * Q[context, x] >= P[context, x]:
                context = draw(np.maximum(P[context] - Q[context], 0.0))
                break
            accepted, context = accepted + 1, x
        else:
            context = draw(P[context])
    assert 1 + accepted / steps == pytest.approx(found.tokens_per_step, abs=0.03)
    assert accepted / tested == pytest.approx(found.alpha_verified, abs=0.01)
    assert abs(expected_tokens(found.alpha_context, 3) - found.tokens_per_step) > 0.04  # the formula is off


def test_second_order_contexts_are_read_as_a_table_model_reads_them():
    p, q = np.random.default_rng(2).dirichlet(np.ones(2), size=(2, 2, 2))
    found = markov_steps(p, q, 2)
    run = simulate(TableModel(p), TableModel(q), gamma=2, steps=200_000, rng=1)
    assert run.alpha_context == pytest.approx(np.mean(acceptance_rate(p, q)))  # from every context alike
    twice = markov_steps(
        np.broadcast_to(p[:, None], (2, 2, 2, 2)), np.broadcast_to(q[:, None], (2, 2, 2, 2)), 2
    )
    assert found.by_position.min() > 0
    assert twice.tokens_per_step != pytest.approx(
        found.tokens_per_step
    )  # the order of the two tokens matters
