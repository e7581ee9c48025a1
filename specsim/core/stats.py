"""Statistics on integer counts: chi-square, e-values, bounds on total variation, power.

Nothing here knows what a token is. A *table* is a vector of counts over k cells with a known law π under the
null. Two statistics do two jobs. Pearson's **chi-square** is what people read. The **e-value** decides: it needs
no asymptotics, and it may be looked at after any number of draws, because the chance that it ever exceeds 1/δ
under the null is at most δ (Ville's inequality).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, special
from scipy import stats as distributions

__all__ = [
    "MIN_EXPECTED",
    "POWER",
    "ChiSquare",
    "binomial_p_value",
    "certified_tv",
    "chi_square",
    "detectable_tv",
    "log_e_value",
    "log_e_values",
    "log_two_sample_e",
    "lower_tail_p_value",
    "merge_cells",
    "needed_draws",
    "tv_interval",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Expected count below which a cell is merged with others before a chi-square is taken.
MIN_EXPECTED = 10.0
#: Probability of detection that "detectable" refers to.
POWER = 0.999
#: Deviations that the e-value's alternatives are spread for, as total variation: concentration c = k/4ε².
DEVIATIONS = np.geomspace(1e-3, 1e-1, 9)


def merge_cells(pmf: ArrayLike, visits: float, minimum: float = MIN_EXPECTED) -> Ints:
    """A partition of the outcomes of `pmf` [V] into cells of expected count ≥ `minimum` in `visits` draws.

    Returns int64 [V]: the cell of each outcome, -1 for one of probability 0. Outcomes that are frequent enough
    keep a cell each, in order; the rare ones share the last. If those together stay below `minimum`, the least
    frequent of the others joins them. It uses nothing but the law, so it may be fixed before any draw.

    >>> merge_cells([0.5, 0.004, 0.49, 0.006, 0.0], visits=1000)
    array([ 0,  2,  1,  2, -1])
    """
    weights = np.asarray(pmf, dtype=np.float64)
    expected = weights * visits
    possible = weights > 0
    rare = possible & (expected < minimum)
    frequent = possible & ~rare
    if rare.any() and frequent.any() and expected[rare].sum() < minimum:
        least = np.where(frequent, expected, np.inf).argmin()
        rare[least], frequent[least] = True, False
    cells = np.full(weights.shape, -1, dtype=np.int64)
    cells[frequent] = np.arange(int(frequent.sum()))
    cells[rare] = int(frequent.sum())
    return cells


@dataclass(frozen=True)
class ChiSquare:
    """Pearson's statistic, its degrees of freedom, and P(χ² ≥ statistic) under the null."""

    statistic: float
    df: int
    p_value: float


def chi_square(counts: ArrayLike, pmf: ArrayLike) -> ChiSquare:
    """Pearson's chi-square of integer `counts` [k] against the law `pmf` [k], all of whose cells are possible.

    One cell leaves nothing to test: statistic 0, p-value 1. Raises TypeError for counts that are not integers
    (frequencies would make the test unable to fail), ValueError for a cell of probability 0.

    >>> chi_square([48, 52], [0.5, 0.5]).statistic
    0.16
    >>> chi_square([0.48, 0.52], [0.5, 0.5])
    Traceback (most recent call last):
    ...
    TypeError: counts: expected integers, got float64; a chi-square on frequencies cannot fail
    """
    observed, law = _check_table(counts, pmf)
    expected = observed.sum() * law
    if len(law) == 1 or observed.sum() == 0:
        return ChiSquare(0.0, 0, 1.0)
    statistic = float(((observed - expected) ** 2 / expected).sum())
    df = len(law) - 1
    return ChiSquare(statistic, df, float(distributions.chi2.sf(statistic, df)))


def log_e_value(counts: ArrayLike, pmf: ArrayLike) -> float:
    """Natural log of the Dirichlet–multinomial e-value of `counts` [k] against `pmf` [k].

    The likelihood ratio of a Dirichlet(c·π) mixture of multinomials to the null (Lindon & Malek, "Anytime-valid
    inference for multinomial count data", NeurIPS 2022), averaged over concentrations c = k/4ε², ε the total
    variation from .001 to .1 that each is meant for. Under the null its expectation is 1 at any stopping time.

    >>> log_e_value([5000, 5000], [0.5, 0.5]) < 0 < log_e_value([5500, 4500], [0.5, 0.5])
    True
    """
    observed, law = _check_table(counts, pmf)
    return float(log_e_values(observed[None], law)[0])


def log_e_values(counts: Ints, pmf: Floats) -> Floats:
    """The same for each row of `counts` [n, k], which is not checked: many tables under one law."""
    if len(pmf) == 1:
        return np.zeros(len(counts))
    n = counts.sum(axis=1)[:, None]
    c = _concentrations(len(pmf))
    mixture = special.gammaln(c) - special.gammaln(c + n)
    prior = c[:, None] * pmf
    mixture += (special.gammaln(prior + counts[:, None, :]) - special.gammaln(prior)).sum(axis=2)
    null = special.xlogy(counts, pmf).sum(axis=1)
    log_e: Floats = special.logsumexp(mixture - null[:, None], axis=1) - np.log(len(c))
    return log_e


#: How many earlier counts, of the cells' number, each plug-in alternative shrinks towards what the samples share. Laws
#: at a distance of ε are told apart best by about 1/4ε²: these reach as far as `DEVIATIONS` does.
SHRINKAGES = tuple(8.0**i for i in range(7))


def log_two_sample_e(blocks: Sequence[tuple[ArrayLike, ArrayLike]]) -> float:
    """Natural log of an e-value against "both samples follow one law", whatever that law is.

    `blocks` are pairs of integer counts ([k], [k]), in the order in which they were drawn. In each block the likelihood
    of two laws q_a, q_b estimated from the *earlier* blocks is divided by that of their mixture
    (n_a·q_a + n_b·q_b)/(n_a + n_b), which bounds every common law from the null's side (Turner, Ly & Grünwald, "Generic
    e-variables for exact sequential k-sample tests that allow for optional stopping", arXiv 2106.02693, Theorem 1). The
    product over blocks is averaged over how far the estimates are shrunk towards each other. Under the null its
    expectation is at most 1 after any block. The first block only teaches.

    >>> same, other = ([500, 500], [500, 500]), ([500, 500], [400, 600])
    >>> log_two_sample_e([same] * 4) < 1 < log_two_sample_e([other] * 4)
    True
    """
    counts = [tuple(_check_counts(side) for side in block) for block in blocks]
    if not counts:
        return 0.0
    k = len(counts[0][0])
    weights = np.array(SHRINKAGES)[:, None] * k
    logs = np.zeros(len(SHRINKAGES))
    seen_a, seen_b = np.zeros(k), np.zeros(k)
    for a, b in counts:
        n_a, n_b = a.sum(), b.sum()
        if n_a and n_b and seen_a.sum() and seen_b.sum():
            shared = (seen_a + seen_b + 0.5) / (seen_a.sum() + seen_b.sum() + 0.5 * k)
            q_a, q_b = ((seen + weights * shared) / (seen.sum() + weights) for seen in (seen_a, seen_b))
            mixture = (n_a * q_a + n_b * q_b) / (n_a + n_b)
            logs += np.log(q_a / mixture) @ a + np.log(q_b / mixture) @ b
        seen_a, seen_b = seen_a + a, seen_b + b
    return float(special.logsumexp(logs) - np.log(len(logs)))


def binomial_p_value(hits: int, n: int, probability: float) -> float:
    """Exact two-sided p-value of `hits` in `n` trials of `probability`: twice the smaller tail, at most 1."""
    lower = distributions.binom.cdf(hits, n, probability)
    upper = distributions.binom.sf(hits - 1, n, probability)
    return float(min(1.0, 2.0 * min(lower, upper)))


def lower_tail_p_value(statistic: float, df: int) -> float:
    """P(χ² ≤ statistic): small if counts agree with their law better than independent draws would.

    Asymptotic, and only for sums over many cells, where the statistic's lower tail is close to the limit's.
    """
    return float(distributions.chi2.cdf(statistic, df))


def detectable_tv(cells: int, n: float, level: float, power: float = POWER) -> float:
    """The total variation from which on `n` draws over `cells` cells are rejected with probability ≥ `power`.

    `level` is the false-alarm probability of this one test, so that rejection means e ≥ 1/level. For large n
    log e ≈ log mean_c exp(½[X²·n/(n+c) - (k-1)·log(1+n/c)]), X² Pearson's statistic; solved for X² this is the
    critical value. A deviation of total variation ε has Σδ²/π ≥ 4ε², so its X² has non-centrality at least
    4nε²; the ε returned is √(λ/4n), λ the non-centrality that reaches the critical value with that power.
    1 where even that cannot be detected.
    """
    if cells < 2 or n < 1:
        return 1.0
    return float(min(1.0, np.sqrt(_noncentrality(cells, n, level, power) / (4.0 * n))))


def needed_draws(distance: float, cells: int, level: float, power: float = POWER) -> float:
    """How many draws over `cells` cells reject, with probability ≥ `power`, a law at chi-square `distance` Σδ²/π > 0.

    As for `detectable_tv`: n draws have non-centrality n·distance. That is a limit of many draws and small deviations;
    where a handful of draws would do, it is a guess.

    >>> round(needed_draws(4 * detectable_tv(4, 10_000, 1e-9) ** 2, 4, 1e-9))
    10000
    """
    if cells < 2 or not distance > 0:
        raise ValueError(
            f"{cells} cells, distance {distance}: expected at least 2 cells and a positive distance"
        )

    def missing(log_n: float) -> float:
        n = float(np.exp(log_n))
        return float(np.log(n * distance / _noncentrality(cells, n, level, power)))

    low, high = 0.0, 10.0
    if missing(low) >= 0.0:
        return 1.0
    while missing(high) < 0.0:
        low, high = high, high + 10.0
    return float(np.exp(optimize.brentq(missing, low, high, xtol=1e-6)))


def _noncentrality(cells: int, n: float, level: float, power: float) -> float:
    """That of Pearson's statistic with which `n` draws are rejected with probability `power`, see `detectable_tv`."""
    df, c = cells - 1, _concentrations(cells)

    def excess(statistic: float) -> float:
        log_e = 0.5 * (statistic * n / (n + c) - df * np.log1p(n / c))
        return float(np.logaddexp.reduce(log_e) - np.log(len(c)) + np.log(level))

    upper = 10.0
    while excess(upper) < 0:
        upper *= 2.0
    critical = optimize.brentq(excess, 0.0, upper)

    def spare(noncentrality: float) -> float:
        return 1.0 - power - float(special.chndtr(critical, df, noncentrality))

    reach = critical + 10.0
    while spare(reach) < 0:
        reach *= 2.0
    return float(optimize.brentq(spare, 1e-9, reach))


def certified_tv(counts: ArrayLike, pmf: ArrayLike, delta: float) -> float:
    """An upper bound on the total variation between the law that was sampled and `pmf`, at confidence 1 - delta.

    TV(p̂, π) + √((k ln 2 + ln 1/δ)/2n), from the Bretagnolle–Huber–Carol inequality; for `counts` [k] of a number
    of draws fixed beforehand. 1 without draws.
    """
    observed, law = _check_table(counts, pmf)
    return min(1.0, _empirical_tv(observed, law) + _radius(len(law), int(observed.sum()), delta))


def tv_interval(counts: ArrayLike, pmf: ArrayLike, delta: float) -> tuple[float, float, float]:
    """(estimate, lower, upper) of the total variation between the law that was sampled and `pmf`."""
    observed, law = _check_table(counts, pmf)
    estimate, radius = _empirical_tv(observed, law), _radius(len(law), int(observed.sum()), delta)
    return estimate, max(0.0, estimate - radius), min(1.0, estimate + radius)


def _empirical_tv(observed: Ints, law: Floats) -> float:
    return float(np.abs(observed / max(1, observed.sum()) - law).sum()) / 2.0


def _radius(cells: int, n: int, delta: float) -> float:
    return float(np.sqrt((cells * np.log(2.0) - np.log(delta)) / (2.0 * n))) if n else 1.0


def _concentrations(cells: int) -> Floats:
    return cells / (4.0 * DEVIATIONS**2)


def _check_counts(counts: ArrayLike) -> Ints:
    observed = np.asarray(counts)
    if observed.dtype.kind not in "iu":
        raise TypeError(
            f"counts: expected integers, got {observed.dtype}; a chi-square on frequencies cannot fail"
        )
    if observed.size and observed.min() < 0:
        raise ValueError(f"counts: {observed.min()} is negative")
    return observed.astype(np.int64)


def _check_table(counts: ArrayLike, pmf: ArrayLike) -> tuple[Ints, Floats]:
    observed, law = _check_counts(counts), np.asarray(pmf, dtype=np.float64)
    if observed.shape != law.shape or observed.ndim != 1 or len(law) == 0:
        raise ValueError(f"counts {observed.shape} and pmf {law.shape} must share one shape [k], k ≥ 1")
    if not ((law > 0).all() and abs(law.sum() - 1.0) <= 1e-9):
        raise ValueError("pmf: every cell must have positive probability, and they must sum to 1")
    return observed, law
