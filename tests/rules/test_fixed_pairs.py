"""Draws of the fixed-pair kernels, one by one, against inverse CDFs in plain Python."""

from contextlib import nullcontext

import numpy as np
import pytest
from conftest import alias_lookup

from specsim.core._kernels import interpreted
from specsim.core.distributions import inverse_cdf
from specsim.rules._common.fixed_pairs import (
    alias_draw,
    below_stretches,
    build_tables,
    count_below,
    draw_residual,
    draw_without,
    mass_without,
    residual_mass,
)


@pytest.fixture(autouse=True)
def kernels(full):
    """The kernels in plain Python unless all tests are run, as compiling them takes longer than what they draw."""
    with nullcontext() if full else interpreted():
        yield


def pairs(count):
    """Pairs of pmfs with zeros, and uniforms to draw with."""
    rng = np.random.default_rng(1)
    for size in rng.integers(2, 9, count):
        weights = rng.random((2, size)) * (rng.random((2, size)) < 0.8)
        weights[np.arange(2), rng.integers(size, size=2)] += 0.1
        yield *(weights / weights.sum(axis=1, keepdims=True)), rng.random(50), rng


def test_an_alias_table_is_read_as_it_means():
    for p, q, uniforms, _ in pairs(40):
        pair = build_tables(p, q)
        for u in (0.0, 1 - 2.0**-42, *uniforms):
            assert alias_draw(pair.p_alias, u) == alias_lookup(pair.p_alias, u)
            assert alias_draw(pair.q_alias, u) == alias_lookup(pair.q_alias, u)


def test_numbers_below_a_goal_are_counted_as_searchsorted_does():
    rng = np.random.default_rng(2)
    for size in rng.integers(1, 40, 200):
        numbers = np.sort(rng.gamma(0.5, size=size) * rng.choice([1e-3, 1.0, 50.0]))
        if rng.random() < 0.5:  # many are equal, some are 1
            numbers = np.round(numbers * 4) / 4
        if rng.random() < 0.2:
            numbers[-1] = np.inf
        near = [np.nextafter(numbers, to) for to in (0.0, np.inf)]
        goals = np.concatenate([numbers, *near, rng.random(9), [0.0, 1 - 2.0**-53, 1.0, 5e-324, np.inf]])
        guide = below_stretches(numbers, numbers.size)
        assert [count_below(numbers, guide, goal) for goal in goals] == np.searchsorted(
            numbers, goals
        ).tolist()
        assert 0 <= count_below(numbers, guide, np.nan) <= size


def test_a_residual_is_drawn_by_inverse_cdf_in_order_of_q_over_p():
    empty = 0
    for p, q, uniforms, rng in pairs(200):
        pair = build_tables(p, q)
        b, d = rng.random(2) * [2.0, 1.5] if rng.random() < 0.8 else (1.0, 1.0)
        weights = np.maximum(b * p - d * q, 0.0)
        assert residual_mass(pair, b, d) == pytest.approx(weights.sum(), abs=1e-14)
        if not weights.any():
            empty += 1
            assert [draw_residual(pair, b, d, u) for u in uniforms] == [
                alias_draw(pair.p_alias, u) for u in uniforms
            ]
            continue
        ordered = weights[pair.order].tolist()
        drawn = [draw_residual(pair, b, d, u) for u in uniforms]
        assert drawn == [pair.order[inverse_cdf(ordered, u)] for u in uniforms]
    assert 0 < empty < 100


def test_tokens_already_drawn_are_stepped_over(full):
    for p, q, uniforms, rng in pairs(200 if full else 80):
        pair = build_tables(p, q)
        excluded = rng.permutation(q.size)[: rng.integers(1, q.size)]
        left = q.copy()
        left[excluded] = 0.0
        assert mass_without(pair.q, pair.q_sums, excluded) == pytest.approx(left.sum(), abs=1e-14)
        for u in uniforms:
            token = inverse_cdf(left.tolist(), u) if left.any() else -1
            assert draw_without(pair.q, pair.q_sums, pair.q_guide, excluded, u) == token
            assert draw_without(pair.q, pair.q_sums, pair.q_guide, np.repeat(excluded, 2), u) == token
            if excluded.size == 1:
                assert draw_without(pair.q, pair.q_sums, pair.q_guide, (excluded[0],), u) == token
