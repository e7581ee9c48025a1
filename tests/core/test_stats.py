"""Statistics against SciPy, enumeration and slow code, and their promises under optional stopping."""

import itertools
import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from cases import cases
from conftest import FALSE_ALARM
from hypothesis import given
from hypothesis import strategies as st
from refused import refuses
from scipy import special, stats

from specsim.core.stats import (
    DEVIATIONS,
    MIN_EXPECTED,
    _likeliest_law,
    chi_square,
    detectable_tv,
    log_e_value,
    log_e_values,
    log_pooled_two_sample_e,
    log_single_cell_e_value,
    lower_tail_p_value,
    merge_cells,
    needed_draws,
    tv_interval,
)

LAW = np.array([0.1, 0.2, 0.3, 0.4])


def most_hits(trials, probability):
    """More hits than this are had with chance `FALSE_ALARM` at most."""
    return int(stats.binom.isf(FALSE_ALARM, trials, probability))


def least_favourable(cells, tv):
    """The uniform law on `cells` (an even number), and the hardest one to detect at total variation `tv`."""
    return np.full(cells, 1 / cells), (1 + 2 * tv * np.resize([1, -1], cells)) / cells


# --- chi-square ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cells", [2, 3, 10, 400])
def test_chi_square_is_that_of_scipy(cells):
    rng = np.random.default_rng(cells)
    for _ in range(20):
        law = rng.dirichlet(np.ones(cells))
        counts = rng.multinomial(1000 * cells, rng.dirichlet(1000 * law))
        got, expected = chi_square(counts, law), stats.chisquare(counts, counts.sum() * law, sum_check=False)
        assert got.statistic == pytest.approx(expected.statistic, rel=1e-12)
        assert got.p_value == pytest.approx(expected.pvalue, rel=1e-9)
        assert got.df == cells - 1


@pytest.mark.parametrize("function", [chi_square, log_e_value, lambda c, p: tv_interval(c, p, 0.1)])
def test_every_statistic_refuses_what_is_no_table_of_counts(function):
    for counts in ([0.48, 0.52], [48.0, 52.0], [True, False]):
        refuses(r"expected ints, got .*shares cannot fail", function, counts, [0.5, 0.5], error=TypeError)
    refuses(r"counts, pmf: shapes \(3,\) and \(2,\)", function, [1, 2, 3], [0.5, 0.5])
    with pytest.raises(ValueError, match="k ≥ 1"):
        function(np.empty(0, dtype=int), [])
    for law in ([1.0, 0.0], [0.5, 0.4], [1.5, -0.5]):
        refuses("every cell must have positive probability", function, [1, 2], law)


def log_gamma(z):
    """The logarithm of Γ(z) to 40 digits, by Stirling's series."""
    z, below = Decimal(z), Decimal(1)
    while z < 1000:
        z, below = z + 1, below * z
    series = sum(Decimal(a) / b / z ** (2 * i + 1) for i, (a, b) in enumerate(STIRLING))
    return (z - Decimal("0.5")) * z.ln() - z + (2 * PI).ln() / 2 + series - below.ln()


PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494")
STIRLING = [(1, 12), (-1, 360), (1, 1260), (-1, 1680), (1, 1188), (-691, 360360), (1, 156)]


@pytest.mark.parametrize("counts", [(2**39, 2**39), (2**39 + 2_000_000, 2**39 - 2_000_000), (2**40, 0)])
def test_statistics_of_the_most_draws_are_exact_up_to_rounding(counts):
    """Of a law of two equal cells, with 50 digits and in fractions."""
    with localcontext(prec=50):
        logs = []
        for deviation in DEVIATIONS:
            a = 1 / (4 * Decimal(deviation) ** 2)  # of each of the two cells
            cells = sum(log_gamma(a + x) - log_gamma(a) for x in counts)
            logs.append(log_gamma(2 * a) - log_gamma(2 * a + 2**40) + cells + 2**40 * Decimal(2).ln())
        exact = (sum((one - max(logs)).exp() for one in logs) / len(logs)).ln() + max(logs)
    assert log_e_value(counts, [0.5, 0.5]) == pytest.approx(float(exact), rel=1e-12, abs=0.02)
    statistic = Fraction((counts[0] - counts[1]) ** 2, 2**40)
    assert chi_square(counts, [0.5, 0.5]).statistic == pytest.approx(float(statistic), rel=1e-15)
    assert tv_interval(counts, [0.5, 0.5], 0.1)[0] == (counts[0] - counts[1]) / 2**41
    assert log_pooled_two_sample_e([[(counts, counts)] * 2]) == pytest.approx(0, abs=1e-3)


# --- the e-value -----------------------------------------------------------------------------------------


def slow_log_e_value(draws, law):
    """The mean over concentrations of the product of one-step predictions, each over the null's own."""
    k = len(law)
    total = Fraction(0)
    for deviation in DEVIATIONS:
        c = Fraction(k / (4 * deviation**2))
        seen, product = [0] * k, Fraction(1)
        for t, x in enumerate(draws):
            product *= (c * law[x] + seen[x]) / (c + t) / law[x]
            seen[x] += 1
        total += product
    return math.log(total / len(DEVIATIONS))


@pytest.mark.parametrize("law", [[0.5, 0.5], [0.25, 0.75], [0.125, 0.125, 0.5, 0.25], [0.0625] * 16])
def test_the_e_value_is_the_sequential_predictive_product(law):
    rng = np.random.default_rng(len(law))
    exact = [Fraction(x) for x in law]
    for drawn_from in (law, rng.dirichlet(np.ones(len(law)))):
        draws = rng.choice(len(law), size=60, p=drawn_from).tolist()
        counts = np.bincount(draws, minlength=len(law))
        assert log_e_value(counts, law) == pytest.approx(slow_log_e_value(draws, exact), abs=1e-7)
        assert slow_log_e_value(sorted(draws), exact) == pytest.approx(slow_log_e_value(draws, exact))


@pytest.mark.parametrize(*cases(__file__, "expectations"))
@pytest.mark.parametrize("n", [1, 2, 5, 12])
def test_the_e_value_has_expectation_one_under_the_null(law, other, n):
    outcomes = [c for c in itertools.product(range(n + 1), repeat=len(law)) if sum(c) == n]
    e_values = np.exp([log_e_value(np.array(c), law) for c in outcomes])
    assert stats.multinomial.pmf(outcomes, n, law) @ e_values == pytest.approx(1, abs=1e-9)
    elsewhere = stats.multinomial.pmf(outcomes, n, other) @ e_values
    if n == 1:  # a first draw tells nothing: the prediction before it is the null's
        assert np.allclose(e_values, 1, atol=1e-9)
    else:
        assert elsewhere > 1 + 1e-7


def test_nothing_follows_from_no_draws_or_a_single_cell():
    assert log_e_value([0, 0], [0.5, 0.5]) == pytest.approx(0, abs=1e-9)
    assert log_e_value([1000], [1.0]) == 0.0
    for counts, law in (([7], [1.0]), ([0, 0], [0.5, 0.5])):
        result = chi_square(counts, law)
        assert (result.statistic, result.df, result.p_value) == (0.0, 0, 1.0)
    assert tv_interval([0, 0], [0.5, 0.5], 0.1)[1:] == (0.0, 1.0)
    assert detectable_tv(1, 1000, 0.01) == 1.0
    assert detectable_tv(8, 0, 0.01) == 1.0
    assert detectable_tv(8, 5, 1e-9) == 1.0


def test_the_e_value_allows_a_look_at_any_time_and_chi_square_does_not():
    """600 streams drawn from the null, each looked at 100 times, at level 1 %."""
    streams, looks, level = 600, 100, 0.01
    rng = np.random.default_rng(11)
    tables = rng.multinomial(200, LAW, size=(streams, looks)).cumsum(axis=1)
    expected = 200 * np.arange(1, looks + 1)[:, None] * LAW
    statistics = ((tables - expected) ** 2 / expected).sum(axis=2)
    assert statistics[3, 7] == pytest.approx(chi_square(tables[3, 7], LAW).statistic)

    evidence = log_e_values(tables.reshape(-1, len(LAW)), LAW).reshape(streams, looks)
    for stream, look in rng.integers([streams, looks], size=(100, 2)):
        assert evidence[stream, look] == pytest.approx(log_e_value(tables[stream, look], LAW), abs=1e-7)
    assert (evidence.max(axis=1) > math.log(1 / level)).sum() <= most_hits(streams, level)
    peeking = (statistics.max(axis=1) > stats.chi2.isf(level, len(LAW) - 1)).sum()
    assert peeking > 0.05 * streams > most_hits(streams, level)


def test_the_e_value_grows_where_the_null_is_false():
    rng = np.random.default_rng(12)
    wrong = LAW + np.array([0.01, -0.01, 0.01, -0.01])
    grown = [log_e_value(rng.multinomial(n, wrong), LAW) for n in (10_000, 100_000, 1_000_000)]
    assert grown[0] < grown[1] < grown[2]
    assert grown[2] > math.log(1e100)


# --- with a tolerance --------------------------------------------------------------------------------------


def within(law, tolerance, rng):
    """A law within exp(±tolerance) of `law`, often at the limits of several cells."""
    sides = rng.choice([-1.0, 0.3, 1.0], size=len(law))
    return _likeliest_law(
        np.maximum(1, (1e6 * law * np.exp(2 * tolerance * sides)).astype(int)), law, tolerance
    )


@pytest.mark.parametrize("tolerance", [0.01, 0.2, 2.0])
def test_the_likeliest_law_is_within_the_tolerance_and_none_there_is_likelier(tolerance):
    rng = np.random.default_rng(5)
    for _ in range(20):
        law = rng.dirichlet(np.ones(5))
        counts = rng.integers(0, 40, 5) * (rng.random(5) < 0.7)
        found = _likeliest_law(counts, law, tolerance)
        assert (np.abs(np.log(found / law)) <= tolerance + 1e-12).all()
        assert found[counts > 0].sum() <= 1 + 1e-12
        others = np.array([within(law, tolerance, rng) for _ in range(50)])
        assert np.abs(others.sum(axis=1) - 1).max() < 1e-9
        likelihoods = special.xlogy(counts, others).sum(axis=1)
        assert special.xlogy(counts, found).sum() >= likelihoods.max() - 1e-9


@pytest.mark.parametrize("tolerance", [0.02, 0.3])
def test_with_a_tolerance_the_expectation_is_at_most_one_for_laws_that_change_within_it(tolerance):
    """The counts of n draws from n laws, enumerated."""
    rng, law, n = np.random.default_rng(6), np.array([0.2, 0.3, 0.5]), 7
    for _ in range(10):
        chances = {(0, 0, 0): 1.0}
        for _ in range(n):
            drawn_from = within(law, tolerance, rng)
            following = {}
            for counts, chance in chances.items():
                for x, p in enumerate(drawn_from):
                    key = tuple(c + (i == x) for i, c in enumerate(counts))
                    following[key] = following.get(key, 0.0) + chance * p
            chances = following
        mean = sum(p * math.exp(log_e_value(counts, law, tolerance)) for counts, p in chances.items())
        assert mean <= 1 + 1e-9


def test_a_tolerance_forgives_what_is_within_it_and_nothing_else():
    rng = np.random.default_rng(7)
    near, far = LAW * np.exp([0.02, -0.02, 0.02, -0.02]), LAW * np.exp([0.1, -0.1, 0.1, -0.1])
    near, far = (rng.multinomial(10**6, law / law.sum()) for law in (near, far))
    assert log_e_value(near, LAW) > math.log(1e9) > 0 > log_e_value(near, LAW, 0.03)
    assert log_e_value(far, LAW, 0.03) > math.log(1e9)
    assert log_e_value(near, LAW, 0.0) == log_e_value(near, LAW)
    assert log_e_value([5], [1.0], 0.1) == 0.0
    assert log_e_value([0, 0], [0.5, 0.5], 0.1) == pytest.approx(0, abs=1e-9)


# --- power -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("cells", "n", "level"), [(2, 10_000, 1e-3), (8, 50_000, 1e-6), (64, 10**6, 1e-9)])
def test_a_deviation_called_detectable_is_detected_and_a_third_of_it_mostly_is_not(full, cells, n, level):
    """Power .999: 2 of 2 000 misses are expected, and more than 20 have a chance of 1e-14."""
    runs = 2000 if full else 400
    tv = detectable_tv(cells, n, level)
    rng = np.random.default_rng(cells)

    def rejections(deviation):
        law, wrong = least_favourable(cells, deviation)
        assert np.abs(law - wrong).sum() / 2 == pytest.approx(deviation)
        tables = rng.multinomial(n, wrong, size=runs)
        return sum(log_e_value(table, law) >= math.log(1 / level) for table in tables)

    assert rejections(tv) >= 0.99 * runs
    assert rejections(tv / 3) < 0.3 * runs
    assert rejections(0) <= most_hits(runs, level)


def test_what_is_detectable_shrinks_with_n_and_grows_with_cells_and_severity():
    base = detectable_tv(8, 10**5, 1e-6)
    assert detectable_tv(*map(np.array, (8, 10.0**5, 1e-6))) == base
    assert 0 < detectable_tv(8, 10**7, 1e-6) < base / 5
    assert detectable_tv(80, 10**5, 1e-6) > base
    assert detectable_tv(8, 10**5, 1e-12) > base
    assert detectable_tv(8, 10**5, 1e-6, power=0.5) < base
    # fewer detections than false alarms: no deviation is needed
    assert 0 < detectable_tv(8, 10**5, 1e-6, power=5e-324) < base / 1000
    assert needed_draws(1e-4, 8, 1e-6, power=5e-324) == 1.0


# --- bounds ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tv", [0.0, 0.01, 0.2])
def test_bounds_on_total_variation_cover_it(tv):
    runs, n, delta = 1000, 2000, 0.01
    law, sampled = least_favourable(4, tv)
    tables = np.random.default_rng(13).multinomial(n, sampled, size=runs)
    estimates, lower, upper = np.array([tv_interval(table, law, delta) for table in tables]).T
    assert ((lower > tv) | (upper < tv)).sum() <= most_hits(runs, delta)
    assert (estimates == np.abs(tables / n - law).sum(axis=1) / 2).all()
    assert np.allclose(upper, estimates + math.sqrt((4 * math.log(2) + math.log(100)) / (2 * n)))
    if tv == 0.2:  # the estimate alone does not cover
        assert (estimates < tv).sum() > most_hits(runs, delta)


# --- cells -----------------------------------------------------------------------------------------------

pmfs = st.lists(st.one_of(st.just(0.0), st.floats(1e-9, 1)), min_size=1, max_size=30).filter(any)


@given(pmfs.map(lambda w: np.array(w) / sum(w)), st.floats(1, 1e5), st.floats(0.5, 50))
def test_merged_cells_are_a_partition_into_cells_that_are_expected_often_enough(pmf, visits, minimum):
    cells = merge_cells(pmf, visits, minimum)
    assert cells.dtype == np.int64
    assert ((cells == -1) == (pmf == 0)).all()
    used = sorted(set(cells.tolist()) - {-1})
    assert used == list(range(len(used)))
    expected = np.bincount(cells[cells >= 0], weights=pmf[cells >= 0]) * visits
    assert (expected >= minimum * (1 - 1e-12)).all() or len(used) == 1
    alone = [cell for cell in used if (cells == cell).sum() == 1]
    assert set(used[:-1]) <= set(alone)  # only the last cell is shared
    first = [int(np.flatnonzero(cells == cell)[0]) for cell in used[:-1]]
    assert first == sorted(first)


def test_frequent_outcomes_keep_a_cell_each():
    assert merge_cells(LAW, visits=100, minimum=MIN_EXPECTED).tolist() == [0, 1, 2, 3]
    assert merge_cells(LAW, visits=99).tolist() == [2, 2, 0, 1]
    assert merge_cells([0.25] * 4, visits=1).tolist() == [0] * 4
    assert merge_cells([0.0, 1.0], visits=1000).tolist() == [-1, 0]


# --- suspicion, single cells -----------------------------------------------------------------------------


def test_stratified_counts_agree_too_well_and_independent_ones_do_not():
    law, n = np.full(400, 1 / 400), 40_000
    rng = np.random.default_rng(14)
    stratified = np.bincount(((np.arange(n) + rng.random(n)) / n * 400).astype(int), minlength=400)
    independent = rng.multinomial(n, law)
    for counts, flagged in ((stratified, True), (independent, False)):
        result = chi_square(counts, law)
        assert (lower_tail_p_value(result.statistic, result.df) < FALSE_ALARM) == flagged
        assert result.p_value > FALSE_ALARM


def test_single_cells_under_the_null():
    """The mean over all outcomes of three draws is 1, and a cell with too many draws, or none, is found."""
    law = np.array([0.6, 0.3, 0.1])
    mean = 0.0
    for draws in itertools.product(range(3), repeat=3):
        counts = np.bincount(draws, minlength=3)
        mean += law[list(draws)].prod() * np.exp(log_single_cell_e_value(counts, law))
    assert mean == pytest.approx(1.0)
    assert log_single_cell_e_value([0, 0, 0], law) == pytest.approx(0.0)
    assert log_single_cell_e_value([5], [1.0]) == 0.0


@pytest.mark.parametrize("share", [0.0, 0.002])
def test_single_cells_find_one_of_thousands(share):
    """A share of .002 of 20,000 draws for a token of 10,000; and one that never comes."""
    law = np.arange(1, 10_001) ** -1.0
    law /= law.sum()
    wrong = (1.0 - share) * law
    wrong[9_998] += share
    found = log_single_cell_e_value(np.random.default_rng(1).multinomial(20_000, wrong), law)
    assert found > 40 if share else found < 3
    missing = np.round(20_000 * law).astype(np.int64)
    missing[12] = 0
    assert log_single_cell_e_value(missing, law) > 40
