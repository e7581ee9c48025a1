"""Steps of a fixed pair in integers: tables against fractions, the kernel against single steps, and counts against
their law."""

from fractions import Fraction

import numpy as np
import pytest
from conftest import FALSE_ALARM, column_lookup
from fixed_pair_steps import FIRST, KEY, awkward_words, emitted, numbers_of
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from specsim import rules
from specsim.core._kernels import interpreted
from specsim.core._streams import key_of
from specsim.core.distributions import synthetic_pair
from specsim.models import chain
from specsim.rules._common.integers import (
    as_integers,
    coins_of,
    columns_of,
    count_steps,
    draw_steps,
    product,
    take_step,
)
from specsim.simulation._counting import StepTally, run
from specsim.simulation._sources import FixedPairSource

ONE = 2**62
#: Of every shape of tables: accepted lengths by position, tests that are certain, a draft that is.
RULES = [
    "standard",
    "lenience:lenience=0.5",
    "ears:tolerance=0.25",
    "typical",
    "blockwise:min_block=2",
    "cascade_token:alpha=0.5",
]

weights = st.lists(
    st.one_of(st.floats(0, 1), st.sampled_from([0.0, 1.0, 0.25, 5e-324, 1e-300, 1e300])),
    min_size=1,
    max_size=20,
).filter(lambda row: 0 < sum(row) < 1e301)


def law_of(columns):
    """How many of 2^62 numbers draw each token."""
    return accepted_of(columns, columns, np.full(len(columns), ONE))


def accepted_of(columns, own, other):
    """How many numbers below cuts draw each token, and are the first of those of their columns that do."""
    size, found = len(columns), [0] * len(columns)
    for column, (bits, *cuts) in enumerate(
        zip(*(one.tolist() for one in (columns, own, other)), strict=True)
    ):
        threshold, *ends = ((cut >> 30) // size << 30 | cut % 2**30 for cut in (bits, *cuts))
        assert 0 <= ends[0] <= threshold <= ends[1] <= ONE // size
        found[column] += ends[0]
        found[(bits >> 30) % size] += ends[1] - threshold
    return found


@given(weights)
def test_a_table_has_the_law_of_its_weights_to_two_units(row):
    exact, law = [Fraction(weight) for weight in row], law_of(columns_of(np.array(row)))
    assert sum(law) == ONE
    assert law[: len(row)] == as_integers(np.array(row)).tolist()
    assert not any(law[len(row) :])
    for weight, count in zip(exact, law, strict=False):
        assert abs(weight / sum(exact) - Fraction(count, ONE)) <= Fraction(2, ONE)
        assert weight or not count


shares = st.one_of(st.integers(0, ONE), st.sampled_from([0, 1, 2**31 - 1, 2**31, ONE - 1, ONE]))


@given(shares, shares)
def test_products_are_rounded_down(one, other):
    assert product(*map(np.int64, (one, other))) == one * other >> 62


def test_one_bit_of_a_large_table_is_seen():
    row = np.random.default_rng(0).dirichlet(np.full(70_000, 0.3))
    shares, columns = as_integers(row).tolist(), columns_of(row)
    assert law_of(columns)[:70_000] == shares
    columns[np.flatnonzero((columns >> 30) % 2**17 != np.arange(2**17))[0]] ^= 1
    assert law_of(columns)[:70_000] != shares


@pytest.mark.parametrize("name", RULES)
def test_a_step_from_tables_has_the_law_of_the_rule(name):
    """From p and q whose ratios and differences floats have exactly."""
    p, q = np.array([4, 1, 2, 1, 0, 8]) / 16, np.array([1, 2, 4, 4, 5, 0]) / 16
    rule = rules.get(name)
    _, _, columns, cuts, _ = rule.fixed_pair.tables(p, q, chain(2), **rule.values)
    assert (coins_of(columns[0], 3) > 0).sum() > 1  # columns of two tokens
    draft, *last = ([Fraction(count, ONE) for count in law_of(table)] for table in columns)
    passed = [accepted_of(columns[0], *row) for row in cuts]
    rows = [[Fraction(weight) for weight in row] for row in (p, q)]
    for x in range(5):
        stop, follow = rule.law(
            (0, 1), (x, x), [rows[0]] * 3, [rows[1]] * 3, **{k: Fraction(v) for k, v in rule.values.items()}
        )
        first, second = (Fraction(row[x]) / ONE / draft[x] for row in (passed[0], passed[-1]))
        assert draft[x] == rows[1][x]
        expected = [1 - first, first * (1 - second), first * second]
        assert all(abs(a - b) <= Fraction(8, ONE) for a, b in zip(stop, expected, strict=True))
        for law, table in zip(follow, (last[0], last[0], last[1]), strict=True):
            assert all(abs(a - b) <= Fraction(2, ONE) for a, b in zip(law, table, strict=False))


@pytest.mark.parametrize(("size", "gamma"), [(1, 2), (2, 1), (5, 4), (100, 5), (2**17 + 1, 3)])
@pytest.mark.parametrize("name", RULES)
def test_many_steps_at_once_are_the_single_steps_also_where_first_bits_are_equal(name, size, gamma):
    rng, rule, steps = np.random.default_rng([size, gamma]), rules.get(name), 150
    p, q = synthetic_pair("zipf", size, 0.7, rng=0) if size > 1 else (np.ones(1), np.ones(1))
    tables = rule.fixed_pair.tables(p, q, chain(gamma), **rule.values)
    words, out = awkward_words(rng, tables, gamma, steps), np.empty((gamma + 1, steps), dtype=np.int32)
    draw_steps(tables, KEY, FIRST, out, words)
    for s in range(steps):
        numbers, tokens = numbers_of(words[:, s], FIRST + s), np.empty(gamma + 1, dtype=np.int64)
        with interpreted():
            rests = [number % 2**30 * 4 for number in numbers]
            n = take_step(*tables[2:], 0, words[:, s], rests, tokens)
        assert emitted(out[:, s]) == tokens[: n + 1].tolist()
        assert column_lookup(tables[2][0], numbers[1])[0] == tokens[0] or n == 0


def test_equal_bits_are_not_decided_by_the_first_ones():
    """With the rests of all columns and cuts changed, steps with equal first bits differ, and no others."""
    p, q = synthetic_pair("zipf", 100, 0.7, rng=0)
    tables = rules.get("standard").fixed_pair.tables(p, q, chain(3))
    entries, last, columns, cuts, follow = tables
    others = entries, last, columns ^ (2**30 - 1), cuts ^ (2**46 - 1), follow
    awkward = awkward_words(np.random.default_rng(0), tables, 3, 500)
    usual = np.random.default_rng(0).integers(0, 2**32, awkward.shape).astype(np.uint32)
    for words, fewest, most in ((usual, 0, 2), (awkward, 20, 500)):
        found = []
        for given_tables in (tables, others):
            found.append(np.empty((4, 500), dtype=np.int32))
            draw_steps(given_tables, KEY, FIRST, found[-1], words)
        assert fewest <= (found[0] != found[1]).any(axis=0).sum() <= most


def source_of(name, size, gamma):
    return FixedPairSource(rules.get(name), *synthetic_pair("zipf", size, 0.7, rng=0), chain(gamma))


@pytest.mark.parametrize("first", [0, 2**32 - 300, 2**61])
@pytest.mark.parametrize(
    ("name", "size", "gamma"), [("standard", 32, 5), ("ears", 5000, 3), ("blockwise", 2, 1)]
)
def test_steps_that_are_counted_are_those_that_are_drawn(name, size, gamma, first):
    source, steps = source_of(name, size, gamma), 5000
    counts = run(source, StepTally(gamma, size), key_of(3), first, steps, threads=1).counts
    lengths, tokens = np.zeros(gamma + 1, dtype=int), np.zeros(size + 1, dtype=int)
    for batch in source.batches(key_of(3), first, steps):
        lengths += np.bincount(batch.accepted, minlength=gamma + 1)
        tokens += np.bincount(batch.tokens.ravel() + 1, minlength=size + 1)
    assert counts["lengths"].tolist() == lengths.tolist()
    assert counts["tokens"].sum(axis=0).tolist() == tokens.tolist()


def test_rules_and_lengths_share_their_numbers():
    """A step that accepts more is one that began alike."""
    ways = [("standard", 5), ("standard", 3), ("lenience:lenience=0.5", 5)]
    long, short, lenient = (next(source_of(name, 50, gamma).batches(KEY, 0, 500)) for name, gamma in ways)
    assert (lenient.accepted >= long.accepted).all()
    assert (short.accepted == np.minimum(long.accepted, 3)).all()
    for s, n in enumerate(long.accepted.tolist()):
        assert lenient.tokens[:n, s].tolist() == long.tokens[:n, s].tolist()
        assert n > 2 or short.tokens[: n + 1, s].tolist() == long.tokens[: n + 1, s].tolist()


def p_values(tables, p, q, gamma, steps):
    """Of the accepted lengths and the emitted tokens of the standard rule."""
    columns = len(tables[1][0])
    emitted_tokens = np.zeros((8, columns + 16 * gamma), dtype=np.int32)
    count_steps(tables, key_of(8), 0, steps, gamma, emitted_tokens)
    found, padding = np.split(emitted_tokens.sum(axis=0), [columns])
    ended = np.diff(padding.reshape(gamma, 16).sum(axis=1), prepend=0, append=steps)
    beta, tokens = np.minimum(p, q).sum(), found[: p.size]
    law = np.append(beta ** np.arange(gamma) * (1 - beta), beta**gamma)
    return stats.chisquare(ended, law * steps).pvalue, stats.chisquare(tokens, p * tokens.sum()).pvalue


def test_a_table_that_is_off_by_a_hundredth_is_told_by_lengths_and_tokens(full):
    p, q = synthetic_pair("zipf", 32, 0.7, rng=0)
    tables, steps = rules.get("standard").fixed_pair.tables(p, q, chain(5)), 10**7 if full else 10**6
    assert min(p_values(tables, p, q, 5, steps)) > FALSE_ALARM
    entries, last, columns, cuts, follow = tables
    lenient = rules.get("lenience").fixed_pair.tables(p, q, chain(5), lenience=0.99)
    assert p_values(lenient, p, q, 5, steps)[0] < FALSE_ALARM
    off = rules.get("standard").fixed_pair.tables(p * (1 + 0.02 * (-1.0) ** np.arange(32)), q, chain(5))
    assert p_values((entries, *off[1:3], cuts, follow), p, q, 5, steps)[1] < FALSE_ALARM
    swapped = entries, last[::-1].copy(), columns, cuts, follow  # the bonus from the residual
    assert p_values(swapped, p, q, 5, steps)[1] < FALSE_ALARM
