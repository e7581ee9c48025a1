"""Closed forms against sums written out in fractions, and against the numbers that Leviathan et al. print."""

from fractions import Fraction

import numpy as np
import pytest
from conftest import PAIR_FLAVOURS, rational_pair

from specsim.theory import acceptance_rate, accepted_law, expected_tokens

ALPHAS = [0.0, 1e-300, 1e-17, 1e-9, 0.1, 1 / 3, 0.5, 0.8, 0.99, 1 - 1e-7, 1 - 1e-12, 1 - 2**-53, 1.0]


@pytest.mark.parametrize("gamma", [0, 1, 2, 5, 10, 100])
def test_expected_tokens_are_the_geometric_sum(gamma):
    for alpha in ALPHAS:
        exact = sum(Fraction(alpha) ** i for i in range(gamma + 1))
        assert expected_tokens(alpha, gamma) == pytest.approx(float(exact), rel=1e-13)


def test_expected_tokens_at_the_ends_and_of_tables():
    assert expected_tokens(0.0, 7) == 1.0
    assert expected_tokens(1.0, 7) == 8.0
    assert expected_tokens(0.3, 0) == 1.0
    assert type(expected_tokens(0.3, 2)) is float
    table = expected_tokens(np.array([[0.0], [0.5], [1.0]]), np.array([1, 2]))
    assert table.tolist() == [[1.0, 1.0], [1.5, 1.75], [2.0, 3.0]]
    assert expected_tokens([0.5, 1.0], 1).tolist() == [1.5, 2.0]


@pytest.mark.parametrize("gamma", [0, 1, 2, 7])
def test_the_accepted_law_is_the_capped_geometric_one(gamma):
    for alpha in ALPHAS:
        a = Fraction(alpha)
        expected = [float(a**k * (1 - a)) for k in range(gamma)] + [float(a**gamma)]
        law = accepted_law(alpha, gamma)
        assert law.shape == (gamma + 1,)
        assert np.allclose(law, expected, rtol=1e-12, atol=1e-15)
        assert law.sum() == pytest.approx(1, abs=1e-14)
        assert 1 + law @ np.arange(gamma + 1) == pytest.approx(expected_tokens(alpha, gamma), rel=1e-12)


def test_the_acceptance_rate_is_the_overlap_of_two_rows():
    rng = np.random.default_rng(2)
    for trial in range(60):
        target, draft = rational_pair(rng, 2 + trial % 5, 0, 0, PAIR_FLAVOURS[trial % 5])
        p, q = target.row([]), draft.row([])
        exact = 1 - sum(abs(a - b) for a, b in zip(p, q, strict=True)) / 2  # Lemma 3.3
        rate = acceptance_rate([float(a) for a in p], [float(b) for b in q])
        assert type(rate) is float
        assert 0 <= rate <= 1
        assert rate == pytest.approx(float(exact), abs=1e-15)
        if PAIR_FLAVOURS[trial % 5] == "disjoint":
            assert rate == 0


def test_the_acceptance_rate_of_many_rows():
    rows = np.random.default_rng(3).dirichlet(np.ones(37), size=500)
    rates = acceptance_rate(rows, rows)
    assert rates.shape == (500,)
    assert (rates <= 1).all()
    assert np.allclose(rates, 1, atol=1e-14)
    p, q = np.array([[0.5, 0.5], [1.0, 0.0]]), np.array([0.25, 0.75])
    assert acceptance_rate(p, q).tolist() == [0.75, 0.25]
    assert acceptance_rate(p[:, None], np.array([q, q, q])).shape == (2, 3)
