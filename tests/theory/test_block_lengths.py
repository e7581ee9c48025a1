"""Accepted lengths: token by token ≤ block verification ≤ the bound, and the range for i.i.d. pairs."""

from fractions import Fraction as F

import numpy as np
import pytest
from conftest import PAIR_FLAVOURS, rational_pair

from specsim.theory import acceptance_rate, accepted_tokens, block_range, expected_tokens
from specsim.theory._enumeration import prove


def tenths(*digits):
    return [F(digit, 10) for digit in digits]


def tables(target, draft, size):
    """What `accepted_tokens` takes, of two models of order 1, the step beginning after token 0."""
    p, q = ([list(model.row([token])) for token in range(size)] for model in (target, draft))
    return (p, q), (p[0], q[0])


def random_tables(count):
    """Random rational models of order 1, V = 2 to 4, with γ so that there are at most 81 drafts."""
    rng = np.random.default_rng(1)
    for trial in range(count):
        size = 2 + trial % 3
        gamma = int(rng.integers(1, {2: 5, 3: 5, 4: 4}[size]))
        target, draft = rational_pair(rng, size, 1, 1, PAIR_FLAVOURS[trial // 3 % 5])
        yield target, draft, size, gamma


def test_an_example_with_all_three_apart():
    """Public notes give the min-joint sum as block verification's length; here the two differ."""
    p, q = [tenths(8, 2), tenths(9, 1)], [tenths(1, 9), tenths(3, 7)]
    found = accepted_tokens(p, q, gamma=2, start=(tenths(8, 2), tenths(2, 8)))
    assert found == (F(54, 100), F(66, 100), F(78, 100))


def test_token_by_token_is_at_most_block_is_at_most_the_bound():
    apart = [0, 0]
    for target, draft, size, gamma in random_tables(200):
        rows, start = tables(target, draft, size)
        token, block, bound = accepted_tokens(*rows, gamma, start)
        assert token <= block <= bound
        if gamma == 1:
            assert token == bound
        apart[0] += token < block
        apart[1] += block < bound
    assert min(apart) > 20


@pytest.mark.parametrize("rule", ["standard", "block"])
def test_lengths_are_those_of_the_rules(rule):
    for target, draft, size, gamma in random_tables(45):
        rows, start = tables(target, draft, size)
        found = accepted_tokens(*rows, gamma, start)
        proof = prove(target, draft, rule=rule, gamma=gamma, context=(0,))
        assert proof.mean_tokens - 1 == (found.token if rule == "standard" else found.block)


def one_hot(size, token):
    return [F(int(token == x)) for x in range(size)]


def test_at_temperature_0_nothing_is_gained():
    for trial, (target, draft, size, gamma) in enumerate(random_tables(60)):
        (p, q), _ = tables(target, draft, size)
        certain = [one_hot(size, (trial + row * row) % size) for row in range(size)]
        token, block, bound = accepted_tokens(certain, q, gamma, (certain[0], q[0]))
        assert token == block == bound
        token, block, bound = accepted_tokens(p, certain, gamma, (p[0], certain[0]))
        assert token == block
        token, block, bound = accepted_tokens(certain, certain[::-1], gamma, (certain[0], certain[-1]))
        assert token == block == bound


def test_of_one_row_the_token_by_token_length_is_the_closed_form():
    rng = np.random.default_rng(2)
    for _ in range(20):
        p, q = rng.dirichlet(np.ones(3), 2)
        found = accepted_tokens(p, q, 4)
        assert found.token + 1 == pytest.approx(expected_tokens(acceptance_rate(p, q), 4), abs=1e-12)
        assert found == pytest.approx(accepted_tokens([p] * 3, [q] * 3, 4, start=(p, q)), abs=1e-12)


@pytest.mark.parametrize("alpha", [0.0, 0.1, 0.5, 0.722, 0.9, 1.0])
@pytest.mark.parametrize("gamma", [1, 2, 5])
def test_the_ends_of_the_range_are_attained(alpha, gamma):
    low, high, p, q = block_range(alpha, gamma)
    assert low <= high
    assert min(p) >= 0
    assert sum(p) == pytest.approx(1)
    assert np.minimum(p, q).sum() == pytest.approx(alpha)
    assert accepted_tokens(p, q, gamma).block == pytest.approx(high, abs=1e-12)
    assert accepted_tokens([alpha, 1 - alpha], [1, 0], gamma).block == pytest.approx(low, abs=1e-12)
    if gamma == 1 or alpha in (0, 1):
        assert high == pytest.approx(low, abs=1e-12)
    else:
        assert high > low + 1e-4
        assert q[0] == pytest.approx(alpha / 2, abs=1e-4)


def test_no_pair_of_rows_is_outside_the_range():
    rng = np.random.default_rng(3)
    for trial in range(40):
        size, gamma = 2 + trial % 4, 2 + trial % 3
        p, q = rng.dirichlet(np.full(size, 0.7), 2)
        low, high, *_ = block_range(acceptance_rate(p, q), gamma)
        assert low - 1e-12 <= accepted_tokens(p, q, gamma).block <= high + 1e-9


def test_merging_tokens_does_not_shorten_blocks():
    """The step of the proof that makes two tokens enough, in fractions."""
    rng = np.random.default_rng(4)
    for trial in range(60):
        target, draft = rational_pair(rng, 3 + trial % 3, 0, 0, PAIR_FLAVOURS[trial % 5])
        p, q = target.row([]), draft.row([])
        more = [x for x in range(len(p)) if p[x] > q[x]]
        merged = [[sum((row[x] for x in more), F(0))] for row in (p, q)]
        merged = [[first, 1 - first] for (first,) in merged]
        before, after = accepted_tokens(p, q, 3), accepted_tokens(*merged, 3)
        assert before.token == after.token
        assert before.block <= after.block
        assert before.bound <= after.bound


def test_the_pairs_of_two_tokens_are_symmetric():
    for alpha in (F(1, 3), F(7, 10)):
        for part in range(6):
            a = alpha * part / 10
            one, other = (accepted_tokens([b + 1 - alpha, alpha - b], [b, 1 - b], 5) for b in (a, alpha - a))
            assert one == other
