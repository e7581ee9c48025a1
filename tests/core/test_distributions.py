"""Distributions: checks, reshaping against naive code, rounding, draws, synthetic pairs."""

import itertools
import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from conftest import LAST_UNIFORM, TINY, alias_lookup
from hypothesis import given
from hypothesis import strategies as st
from refused import refuses

from specsim.core.distributions import (
    PAIR_KINDS,
    TOLERANCE,
    alias_draws,
    alias_table,
    check_probabilities,
    check_rows,
    check_tokens,
    cumulative_draw,
    dyadic,
    inverse_cdf,
    min_p,
    normalise,
    round_to,
    synthetic_pair,
    temperature,
    top_k,
    top_p,
)

weight = st.one_of(
    st.sampled_from([0.0, TINY, 3 * TINY, 1e-310, 1e-300, 1e-9, 1 / 3, 0.5, 1.0]),
    st.sampled_from([1.0, math.nextafter(1.0, 0), math.nextafter(1.0, 2), 1.0 + 1e-12]),
    st.integers(0, 3).map(float),
    st.floats(0, 1),
)
weights = st.lists(weight, min_size=1, max_size=12).filter(any)
rows = weights.map(normalise)

#: Rows of multiples of 2^-12, on which sums are exact, so that naive code cannot differ by rounding.
exact_rows = weights.map(lambda w: dyadic(normalise(w), bits=12))


# --- checks ----------------------------------------------------------------------------------------------


@given(rows)
def test_a_normalised_row_passes_and_stays_as_it_is_up_to_rounding(row):
    checked = check_rows(row)
    assert checked.dtype == np.float64
    assert np.allclose(checked, row, rtol=1e-15, atol=0)
    assert ((checked == 0) == (row == 0)).all()


@pytest.mark.parametrize(
    ("dtype", "allowed"), [(np.float64, 1e-9), (np.float32, 1e-5), (np.float16, 2e-3), ("bfloat16", 1.6e-2)]
)
def test_rows_may_be_off_by_the_rounding_of_their_dtype_and_no_more(dtype, allowed):
    dtype = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    assert TOLERANCE[dtype] == allowed
    size = 200  # small entries, so that the dtype resolves what is added to one of them
    flat = np.full(size, 1 / size)
    near, far = flat.copy(), flat.copy()
    near[3] += 0.3 * allowed
    far[3] += 3 * allowed
    for row in (flat, near):
        assert check_rows(stored_in(row, dtype)).sum() == pytest.approx(1.0, abs=1e-14)
    with pytest.raises(
        ValueError, match=rf"sums to 1.*, off by .*{dtype.name} rounding allows {allowed:.2g}"
    ):
        check_rows(stored_in(far, dtype))


def stored_in(row, dtype):
    """`row` in `dtype`; its last entries make up for the rounding, so that its sum is right."""
    rounded = row.astype(dtype).astype(np.float64)
    step = float(np.spacing(rounded[-1:].astype(dtype))[0])
    missing = round((row.sum() - rounded.sum()) / step)
    rounded[len(row) - abs(missing) :] += np.sign(missing) * step
    return rounded.astype(dtype)


@pytest.mark.parametrize("bad", [-0.25, math.nan, math.inf, -math.inf, -TINY])
@pytest.mark.parametrize("shape", [(4,), (3, 4), (2, 3, 4)])
def test_an_entry_that_is_no_probability_is_named_by_row_token_and_value(bad, shape):
    array = np.full(shape, 0.25)
    place = tuple(n - 1 for n in shape[:-1])
    array[(*place, 2)] = bad
    where = {0: "", 1: ", row 2", 2: r", row \(1, 2\)"}[len(place)]
    for check in (check_rows, check_probabilities):
        refuses(rf"^q{where}, token 2: {bad} is not a probability", check, array, "q")


def test_a_row_that_does_not_sum_to_one_is_named_with_how_far_it_is_off():
    array = [[[0.5, 0.5], [0.5, 0.5]], [[0.5, 0.5], [0.25, 0.5]]]
    refuses(r"^p, row \(1, 1\): sums to 0\.75, off by -0\.25 .*pass normalise\(p\)", check_rows, array)
    assert check_probabilities(array).shape == (2, 2, 2)


@pytest.mark.parametrize(("token", "place", "named"), [(5, 1, "1"), (-1, 1, "1"), (99, (1, 0), r"\(1, 0\)")])
def test_a_token_outside_the_vocabulary_is_named(token, place, named):
    tokens = np.zeros((2, 2) if isinstance(place, tuple) else 3, dtype=np.int32)
    tokens[place] = token
    refuses(rf"position {named}: token {token} is outside .* \[0, 5\)", check_tokens, tokens, 5)


def test_tokens_must_be_integers():
    assert check_tokens(np.array([4, 0], dtype=np.uint8), 5).tolist() == [4, 0]
    for tokens in ([0.0, 1.0], [True, False], ["a"]):
        refuses("expected integer token ids", check_tokens, tokens, 5, error=TypeError)


# --- reshaping, against naive code in plain Python -------------------------------------------------------


def shares(kept):
    total = math.fsum(kept)
    return [x / total for x in kept]


def naive_temperature(row, t):
    if t == 0:
        return [float(x == row.index(max(row))) for x in range(len(row))]
    logits = [math.log(x) / t if x > 0 else -math.inf for x in row]
    return shares([math.exp(logit - max(logits)) for logit in logits])


def naive_top_k(row, k):
    kth = sorted(row, reverse=True)[min(k, len(row)) - 1]
    return shares([x if x >= kth else 0.0 for x in row])


def naive_top_p(row, mass):
    kept, reached = set(), Fraction(0)
    for token in sorted(range(len(row)), key=lambda token: (-row[token], token)):
        if reached >= Fraction(mass):
            break
        kept.add(token)
        reached += Fraction(row[token])
    return shares([x if token in kept else 0.0 for token, x in enumerate(row)])


def naive_min_p(row, fraction):
    return shares([x if x >= fraction * max(row) else 0.0 for x in row])


def assert_same_row(got, expected):
    assert ((got > 0) == (np.array(expected) > 0)).all()
    assert np.allclose(got, expected, rtol=1e-9, atol=1e-300)


@given(rows, st.sampled_from([0.0, 0.05, 0.5, 0.7, 1.0, 1.5, 100.0]))
def test_temperature_is_the_softmax_of_divided_logits(row, t):
    got = temperature(row, t)
    assert np.allclose(got, naive_temperature(check_rows(row).tolist(), t), rtol=1e-9, atol=1e-300)
    assert (got[row == 0] == 0).all()


@given(exact_rows, st.integers(1, 15))
def test_top_k_keeps_the_k_largest_and_their_ties(row, k):
    assert_same_row(top_k(row, k), naive_top_k(row.tolist(), k))


@given(exact_rows, st.integers(1, 2**12).map(lambda n: n / 2**12))
def test_top_p_keeps_the_smallest_set_that_reaches_the_mass(row, mass):
    assert_same_row(top_p(row, mass), naive_top_p(row.tolist(), mass))


@given(exact_rows, st.integers(0, 16).map(lambda n: n / 16))
def test_min_p_keeps_what_is_large_beside_the_largest(row, fraction):
    assert_same_row(min_p(row, fraction), naive_min_p(row.tolist(), fraction))


three_weights = st.lists(weight, min_size=3, max_size=3).filter(any)


@given(st.lists(three_weights.map(lambda w: dyadic(normalise(w), bits=12)), min_size=1, max_size=4))
def test_an_array_of_rows_is_reshaped_row_by_row(batch):
    reshapes = (lambda p: temperature(p, 0.7), lambda p: top_k(p, 2), lambda p: top_p(p, 0.6))
    for reshape in (*reshapes, lambda p: min_p(p, 0.4), normalise, dyadic):
        assert reshape(np.array([batch])).tolist() == [[reshape(row).tolist() for row in batch]]


def test_the_documented_corner_cases():
    assert np.array_equal(temperature([0.2, 0.8], Fraction(1, 2)), temperature([0.2, 0.8], 0.5))
    assert temperature([0.2, 0.4, 0.4], 0).tolist() == [0.0, 1.0, 0.0]  # the lowest token among ties
    assert temperature([1e-300, 1.0], 1e-3).tolist() == [0.0, 1.0]
    assert top_k([0.25, 0.25, 0.25, 0.25], 1).tolist() == [0.25] * 4
    assert top_p([0.5, 0.25, 0.25], 0.5).tolist() == [1.0, 0.0, 0.0]
    assert min_p([0.5, 0.0, 0.5], 0).tolist() == [0.5, 0.0, 0.5]


# --- rounding --------------------------------------------------------------------------------------------


def nearest(value, digits, lowest):
    """The multiple of 2^exponent nearest to `value`, ties to even, in so many binary digits."""
    if value == 0:
        return Fraction(0)
    exponent = max(math.frexp(value)[1] - digits, lowest)
    return round(Fraction(value) / Fraction(2) ** exponent) * Fraction(2) ** exponent


def float32(value):
    return nearest(value, 24, -149)


@given(rows)
def test_rounding_is_to_nearest_ties_to_even(row):
    values = check_rows(row).tolist()
    assert [Fraction(x) for x in round_to(row, np.float32).tolist()] == [float32(x) for x in values]
    assert [Fraction(x) for x in round_to(row, "float16").tolist()] == [nearest(x, 11, -24) for x in values]
    # a float64 becomes bfloat16 by way of float32, as in the frameworks that use it
    expected = [nearest(float(float32(x)), 8, -133) for x in values]
    assert [Fraction(x) for x in round_to(row, "bfloat16").tolist()] == expected


@given(rows, st.sampled_from([4, 12, 24, 52]))
def test_dyadic_rows_sum_to_exactly_one_and_move_by_less_than_a_unit(row, bits):
    got = dyadic(row, bits)
    assert sum(map(Fraction, got.tolist())) == 1
    assert all(Fraction(x) * 2**bits % 1 == 0 for x in got.tolist())
    assert np.abs(got - check_rows(row)).max() < 2.0**-bits
    assert (got[row == 0] == 0).all()


def test_the_sum_of_a_real_vocabulary_is_exact_too():
    row = dyadic(normalise(np.random.default_rng(1).exponential(size=128_000)))
    units = row * 2**24
    assert (units == units.astype(np.int64)).all()
    assert units.astype(np.int64).sum() == 2**24
    assert row.astype(np.float32).astype(np.float64).tolist() == row.tolist()


@given(three_weights.map(normalise))
def test_no_row_of_such_multiples_is_nearer_than_dyadic(row):
    def distance(other):
        return np.abs(row - other).sum()

    lattice = [np.array(units) / 8 for units in itertools.product(range(9), repeat=3) if sum(units) == 8]
    assert distance(dyadic(row, bits=3)) <= min(map(distance, lattice)) + 1e-12


# --- drawing ---------------------------------------------------------------------------------------------


def encoded_law(table):
    """The law that an alias table's words stand for, as `alias_table` documents them."""
    law = [Fraction(0)] * len(table)
    for column, word in enumerate(table.tolist()):
        threshold = Fraction(word >> 32, 2**31)
        law[column] += threshold / len(table)
        law[word & 0xFFFFFFFF] += (1 - threshold) / len(table)
    return law


def distance_from_weights(table, chosen):
    total = sum(map(Fraction, chosen))
    return sum(abs(x - Fraction(w) / total) for x, w in zip(encoded_law(table), chosen, strict=True)) / 2


@given(weights)
def test_an_alias_table_holds_its_law_to_thirty_one_bits_and_no_impossible_token(chosen):
    table = alias_table(chosen)
    assert distance_from_weights(table, chosen) <= Fraction(1, 2**31)
    assert all(mass == 0 for mass, w in zip(encoded_law(table), chosen, strict=True) if w == 0)


def test_an_alias_table_of_many_tokens_holds_its_law_too(full):
    rng = np.random.default_rng(3)
    for size in (100, 1000, *[4096] * full):
        chosen = rng.exponential(size=size) ** 4 * (rng.random(size) < 0.7)
        table = alias_table(chosen)
        assert distance_from_weights(table, chosen.tolist()) <= Fraction(1, 2**31)
        assert not any(mass for mass, w in zip(encoded_law(table), chosen, strict=True) if w == 0)
        chosen[:2] = chosen[1::-1] + 0.1  # the same check sees two weights exchanged
        assert distance_from_weights(table, chosen.tolist()) > Fraction(1, 2**31)


def alias_drawn(table, u):
    """What `alias_draws` draws for each of `u`."""
    drawn = np.empty(len(u), dtype=np.int32)
    alias_draws(table, np.asarray(u, dtype=np.float64), drawn)
    return drawn.tolist()


@pytest.mark.parametrize("size", [1, 48, 49, 107])
def test_columns_of_equal_weights_are_full_however_their_shares_are_rounded(size):
    """Of 49 and of 107 each share is rounded to less than its column."""
    assert (1 / size * size < 1.0) == (size in (49, 107))
    assert alias_table(np.ones(size)).tolist() == [2**31 - 1 << 32 | x for x in range(size)]


def test_alias_draws_read_columns_and_coins_as_the_table_means_them():
    table = alias_table([1, 2, 3, 0, 10, 0.5, 0.25, 0])
    uniforms, expected = [], []
    for column, word in enumerate(table.tolist()):
        threshold, alias = word >> 32, word & 0xFFFFFFFF
        for coin in {0, max(0, threshold - 1), threshold, 2**31 - 1}:
            uniforms.append((column + coin / 2**31) / 8)  # exact
            expected.append(column if coin < threshold else alias)
    assert alias_drawn(table, uniforms) == expected
    assert alias_drawn(table[::-1].copy(), uniforms) != expected


@given(weights)
def test_draws_at_the_ends_of_the_unit_interval_are_possible_tokens(chosen):
    array = np.array(chosen)
    table = alias_table(array)
    for u in (0.0, TINY, 0.5, 1 - 2**-24, LAST_UNIFORM):
        assert array[cumulative_draw(array, u)] > 0
        assert array[alias_drawn(table, [u])[0]] > 0


def test_a_sum_too_small_to_be_split_still_gives_a_possible_token():
    """u times the sum is the sum itself: no running sum exceeds it."""
    for chosen in ([TINY, 0.0], [0.0, 2 * TINY, 0.0], [TINY, TINY, 0.0, 0.0]):
        for u in (0.9, LAST_UNIFORM):
            drawn = cumulative_draw(np.array(chosen), u)
            assert chosen[drawn] > 0
            assert inverse_cdf(chosen, u) == drawn


@given(exact_rows, st.integers(0, 2**20 - 1).map(lambda n: n / 2**20))
def test_cumulative_draw_is_the_first_token_whose_cumulative_weight_exceeds_u(row, u):
    cumulative = list(itertools.accumulate(map(Fraction, row.tolist())))
    for at in (u, *(float(total) for total in cumulative if total < 1)):  # the sums themselves too
        first = next(token for token, total in enumerate(cumulative) if total > Fraction(at))
        assert cumulative_draw(row, at) == first
        assert cumulative_draw(row * 4, at) == first  # weights need not be normalised


@given(weights, st.floats(0, LAST_UNIFORM))
def test_the_plain_draws_are_the_compiled_ones(chosen, u):
    table = alias_table(chosen)
    assert inverse_cdf(chosen, u) == cumulative_draw(np.array(chosen), u)
    assert [alias_lookup(table, u)] == alias_drawn(table, [u])


# --- synthetic pairs -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", PAIR_KINDS)
@pytest.mark.parametrize("size", [2, 3, 10, 1000])
def test_a_synthetic_pair_has_the_overlap_asked_for(kind, size):
    for overlap in (0, 1e-9, 1e-3, 0.1, 0.5, 0.8, 0.99, 1 - 1e-9, 1):
        p, q = synthetic_pair(kind, size, overlap, rng=0)
        assert p.shape == q.shape == (size,)
        assert np.minimum(p, q).sum() == pytest.approx(overlap, abs=1e-10)
        assert check_rows(p).sum() == pytest.approx(1)
        assert check_rows(q).sum() == pytest.approx(1)


def test_synthetic_pairs_look_as_their_kind_says_and_depend_on_their_rng():
    p, q = synthetic_pair("two-point", 6, 0.5, rng=0)
    assert not p[2:].any()
    assert not q[2:].any()
    p, q = synthetic_pair("one-hot", 6, 0.5, rng=0)
    assert q.tolist() == [1.0, 0, 0, 0, 0, 0]
    p, q = synthetic_pair("asymmetric", 100, 0.8, rng=0)
    assert (q > p).tolist() == [True] + [False] * 99
    for kind in ("zipf", "dirichlet"):
        once, again, other = (synthetic_pair(kind, 50, 0.7, rng=seed) for seed in (3, 3, 4))
        assert np.array_equal(once, again)
        assert not np.array_equal(once, other)
