"""Statistics of integer counts, see `specsim.stats`. Arguments out of range raise ValueError or TypeError."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy  # its modules, which load slowly, are loaded at their first use
from numpy.typing import ArrayLike

from specsim.core._types import Floats, Ints, check_between, check_count, check_unmasked, checked

#: Expected count below which a cell is merged with others before a chi-square is taken.
MIN_EXPECTED = 10.0
#: Probability of detection that "detectable" refers to.
POWER = 0.999
#: Cells up to which SciPy computes non-central chi-squares.
MOST_CELLS = 10_000_000
#: The most draws of a table: 2^40. Beyond it e-values, differences of large logarithms, are rounding.
MOST_DRAWS = 2**40
#: Beyond these, numbers of draws and probabilities are too large or too small for a float.
LEAST_DISTANCE, MOST_TOLERANCE = 1e-300, 700.0
#: The non-centrality that a test is never said to need less than.
LEAST_NONCENTRALITY = 1e-9
#: A root is found where the next step is this small a part of it.
NEWTON = 1e-12
#: Total variations ε that the e-value's alternatives cover, by concentration c = k/4ε².
DEVIATIONS = np.geomspace(1e-3, 1.0, 13)
#: Shares of the draws that go to one cell.
SPIKES = tuple(2.0**-i for i in range(1, 21))
#: Shares of the draws that have the distribution of an alternative.
SHARES = tuple(2.0**-i for i in range(7))
#: For the logarithm of 0.
IMPOSSIBLE = -1e280


@checked
def merge_cells(pmf: ArrayLike, visits: float, minimum: float = MIN_EXPECTED) -> Ints:
    """Partition outcomes into cells that are expected often enough for a chi-square.

    Outcomes with an expected count ≥ `minimum` keep a cell each, in order; the rare ones share the last cell.
    If those together stay below `minimum`, the least frequent of the others joins them. The partition depends
    on `pmf` alone, so it may be fixed before any draw.

    Parameters
    ----------
    pmf : array_like, shape [V]
        The distribution under the null.
    visits : float
        Number of draws, ≥ 0.
    minimum : float
        Least expected count of a cell.

    Returns
    -------
    ndarray of int64, shape [V]
        The cell of each outcome, -1 for one of probability 0.

    Examples
    --------
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


@checked
def chi_square(counts: ArrayLike, pmf: ArrayLike) -> ChiSquare:
    """Compute Pearson's chi-square of counts against a distribution.

    Raises TypeError if `counts` are not integers: frequencies would make the test unable to fail.

    Parameters
    ----------
    counts : array_like of int, shape [k]
        At least 0.
    pmf : array_like, shape [k]
        The distribution under the null, positive in every cell.

    Returns
    -------
    ChiSquare
        One cell, or no draws, leaves nothing to test: statistic 0, p-value 1.

    Examples
    --------
    >>> chi_square([48, 52], [0.5, 0.5]).statistic
    0.16
    >>> chi_square([0.48, 0.52], [0.5, 0.5])
    Traceback (most recent call last):
    ...
    TypeError: counts: expected ints, got float64; a chi-square on shares cannot fail
    """
    observed, law = _check_table(counts, pmf)
    expected = observed.sum() * law
    if len(law) == 1 or observed.sum() == 0:
        return ChiSquare(0.0, 0, 1.0)
    statistic = float(((observed - expected) ** 2 / expected).sum())
    df = len(law) - 1
    return ChiSquare(statistic, df, float(scipy.special.chdtrc(df, statistic)))


@checked
def log_e_value(counts: ArrayLike, pmf: ArrayLike, tolerance: float = 0.0) -> float:
    """Compute the natural logarithm of the Dirichlet–multinomial e-value of counts against a distribution.

    The e-value is the likelihood ratio of a Dirichlet(c·π) mixture of multinomials to the null, averaged over
    concentrations c = k/4ε², where ε runs over the total variations from .001 to 1 that the alternatives are
    spread for. Under the null its expectation is 1 at any stopping time.

    With a tolerance τ the null is every π' with exp(-τ) ≤ π'/π ≤ exp(τ) in each cell, and the ratio is to the
    most likely of these. Its expectation is then at most 1, also if the distribution changes from draw to
    draw within those limits: each multinomial a of the mixture is divided by at least the likelihood of the
    π' that is closest to it, and E[a/π'] ≤ 1 for every distribution within the limits. Lindon & Malek,
    "Anytime-valid inference for multinomial count data", NeurIPS 2022. Grünwald, de Heide & Koolen, "Safe
    testing", JRSS B 86 (2024), for the closest distribution.

    Parameters
    ----------
    counts, pmf : array_like
        As for `chi_square`.
    tolerance : float
        By how much the logarithm of a probability under the null may differ from that in `pmf`, from 0 to
        `MOST_TOLERANCE`.

    Returns
    -------
    float

    Examples
    --------
    >>> log_e_value([5000, 5000], [0.5, 0.5]) < 0 < log_e_value([5500, 4500], [0.5, 0.5])
    True
    >>> log_e_value([5500, 4500], [0.5, 0.5], tolerance=0.1) < 0
    True
    """
    observed, law = _check_table(counts, pmf)
    check_between("tolerance", tolerance, 0, MOST_TOLERANCE, "difference of log p")
    tolerance = float(tolerance)
    log_e = float(log_e_values(observed[None], law)[0])
    if tolerance == 0 or len(law) == 1:
        return log_e
    return log_e - float(scipy.special.xlogy(observed, _likeliest_law(observed, law, tolerance) / law).sum())


def _likeliest_law(observed: Ints, law: Floats, tolerance: float) -> Floats:
    """The law within exp(±tolerance) of `law`, cell by cell, that makes `observed` most likely:
    clip(s·observed, lowest, highest), s such that it sums to 1. Cells without a count do not matter."""
    lowest, highest = law * np.exp(-tolerance), law * np.exp(tolerance)
    drawn = observed > 0
    if not drawn.any():
        return law
    n = observed[drawn].astype(np.float64)
    ends = np.concatenate([lowest[drawn] / n, highest[drawn] / n])  # where the sum, as a function of s, bends
    order = np.argsort(ends, kind="stable")
    slopes = np.cumsum(np.concatenate([n, -n])[order])
    sums = lowest.sum() + np.concatenate([[0.0], np.cumsum(slopes[:-1] * np.diff(ends[order]))])
    scale = np.interp(1.0, sums, ends[order])
    return np.where(drawn, np.clip(scale * observed, lowest, highest), lowest)


def log_e_values(counts: Ints, pmf: Floats, starts: Ints | None = None) -> Floats:
    """`log_e_value` [n, T] of T tables of n experiments at once, unchecked: the cells of the tables follow
    one another in counts [n, k] and pmf [k], from starts [T] on. Without `starts` one table gives [n]."""
    if starts is None:
        return _log_mean_exp(_log_ratios(counts, pmf, np.zeros(1, dtype=np.int64)))[:, 0]
    return _log_mean_exp(_log_ratios(counts, pmf, starts))


def log_pooled_e_values(counts: Ints, pmf: Floats, starts: Ints, log_ratios: Floats | None = None) -> Floats:
    """Natural logarithms [n] of an e-value against several tables together, of n experiments.

    For each total variation ε of `log_e_value` the likelihood ratios of all tables are multiplied; their mean
    over ε is an e-value if each draw is counted in one table and has its distribution given the draws before
    it. So a deviation that is small in each of many tables is found. Arguments are as in `log_e_values`. With
    `log_ratios` [M, k], the logarithm of the likelihood ratio of each cell under M alternatives, see
    `log_shared`, it is the mean of two e-values: that against all distributions, and the mean, over the
    alternatives, of the likelihood ratios of all tables multiplied."""
    against_all = _log_mean_exp(_log_ratios(counts, pmf, starts).sum(axis=1))
    if log_ratios is None:
        return against_all
    return np.logaddexp(against_all, _log_mean_exp(counts @ log_ratios.T)) - np.log(2.0)


def log_shared(ratios: Floats) -> Floats:
    """Logarithms [7M, k] of likelihood ratios [M, k] if a share w = 1, 1/2, …, 1/64 of the draws has the
    alternative, all for the largest w first. For -inf they have a large negative number, so that cells
    without a count do not matter."""
    excess = np.asarray(ratios, dtype=np.float64) - 1.0
    with np.errstate(divide="ignore"):
        logs = np.concatenate([np.log1p(share * excess) for share in SHARES])
    return np.maximum(logs, IMPOSSIBLE)


@checked
def log_single_cell_e_value(counts: ArrayLike, pmf: ArrayLike) -> float:
    """Natural logarithm of an e-value against one cell that is more probable, or impossible.

    An alternative gives a share w = 1/2, 1/4, …, 2^-20 of the draws to one cell, whichever, or none at all;
    the likelihood ratios are averaged over shares and cells. With thousands of cells that finds a few draws
    too many in one of them, which are lost among all cells of `log_e_value`."""
    observed, law = _check_table(counts, pmf)
    n = int(observed.sum())
    if len(law) == 1:
        return 0.0
    drawn = observed > 0
    shares = np.array(SPIKES)[:, None]
    more = np.log1p(-shares) * n + observed[drawn] * np.log1p(shares / (law[drawn] * (1.0 - shares)))
    none = -n * np.log1p(-law[~drawn])  # cells without a draw, if they are impossible
    unseen = np.log1p(-shares) * n + np.log(max((~drawn).sum(), 1)) if (~drawn).any() else -np.inf
    logs = np.concatenate([more.ravel(), np.ravel(unseen), none + np.log(len(SPIKES))])
    return float(scipy.special.logsumexp(logs)) - math.log(2 * len(SPIKES) * len(law))


def _log_ratios(counts: Ints, pmf: Floats, starts: Ints) -> Floats:
    """Log likelihood ratios [n, T, 13] of the Dirichlet mixtures to `pmf`, by table and `DEVIATIONS`."""
    gamma = scipy.special.gammaln
    sizes = np.diff(np.append(starts, len(pmf)))

    def sums(of_cells: Floats) -> Floats:
        """By table, of [n, k]."""
        return np.add.reduceat(of_cells, starts, axis=1)

    n, null = np.add.reduceat(counts, starts, axis=1), sums(scipy.special.xlogy(counts, pmf))
    found = np.empty((*n.shape, len(DEVIATIONS)))
    for i, deviation in enumerate(DEVIATIONS):
        c = sizes / (4.0 * deviation**2)
        prior = np.repeat(c, sizes) * pmf
        found[..., i] = gamma(c) - gamma(c + n) + sums(gamma(prior + counts) - gamma(prior)) - null
    return found


def _log_mean_exp(logs: Floats) -> Floats:
    """log(mean(exp(logs))) along the last axis, on short rows far faster than `scipy.special.logsumexp`."""
    largest = logs.max(axis=-1, keepdims=True)
    return largest[..., 0] + np.log(np.exp(logs - largest).mean(axis=-1))


#: Weights, in counts a cell, of the common estimate towards which each plug-in alternative is shrunk. Laws at
#: distance ε are best distinguished with about 1/4ε²: these weights cover the range of `DEVIATIONS`.
SHRINKAGES = tuple(8.0**i for i in range(7))


@checked
def log_pooled_two_sample_e(tables: Sequence[Sequence[tuple[ArrayLike, ArrayLike]]]) -> float:
    """Natural logarithm of an e-value against two samples that agree in every table; 0 without tables.

    A table has blocks, pairs of counts [k] of both samples in the order in which they were drawn; the tables
    count independent draws, each of its own distribution. In each block the likelihood of two distributions
    q_a, q_b, estimated from the *earlier* blocks, is divided by that of their mixture (n_a·q_a +
    n_b·q_b)/(n_a + n_b), so that the quotient has expectation at most 1 under every common distribution. The
    product over blocks and tables is averaged over how far the estimates are shrunk towards each other. Under
    the null its expectation is at most 1 after any block, and a deviation that is small in each of many
    tables is found. The first block only provides estimates. Turner, Ly & Grünwald, "Generic e-variables for
    exact sequential k-sample tests that allow for optional stopping", arXiv 2106.02693, Theorem 1."""
    try:
        logs = [np.zeros(len(SHRINKAGES)), *(_two_sample_logs(blocks) for blocks in tables)]
    except (TypeError, ValueError) as error:
        raise type(error)(f"tables: {error}") from None
    return float(_log_mean_exp(np.sum(logs, axis=0)))


def _two_sample_logs(blocks: Sequence[tuple[ArrayLike, ArrayLike]]) -> Floats:
    """The log e-value of the blocks of one table for each of `SHRINKAGES`."""
    try:
        counts = [(_check_counts(a), _check_counts(b)) for a, b in blocks]
    except (TypeError, ValueError) as error:
        raise type(error)(f"blocks: expected pairs of counts ({error})") from None
    if not counts:
        return np.zeros(len(SHRINKAGES))
    k = len(counts[0][0])
    weights = np.array(SHRINKAGES)[:, None] * k
    a, b = (np.array(side)[:, None] for side in zip(*counts, strict=True))  # [blocks, 1, k]
    each = a, b, np.cumsum(a, axis=0) - a, np.cumsum(b, axis=0) - b
    known = np.all([one.any(axis=(1, 2)) for one in each], axis=0)
    a, b, *seen = (one[known] for one in each)
    n_a, n_b, *n_seen = (one.sum(axis=2, keepdims=True) for one in (a, b, *seen))
    shared = (sum(seen) + 0.5) / (sum(n_seen) + 0.5 * k)
    q_a, q_b = ((one + weights * shared) / (n + weights) for one, n in zip(seen, n_seen, strict=True))
    mixture = (n_a * q_a + n_b * q_b) / (n_a + n_b)
    logs = np.log(q_a / mixture) @ a.swapaxes(1, 2) + np.log(q_b / mixture) @ b.swapaxes(1, 2)
    found: Floats = logs.sum(axis=0)[:, 0]
    return found


@checked
def lower_tail_p_value(statistic: float, df: int) -> float:
    """P(χ² ≤ statistic): small if counts agree with their distribution better than independent draws would.
    Use it only for sums over many cells, where the lower tail is close to that of the limit."""
    check_between("statistic", statistic, 0, math.inf, "statistic")
    return float(scipy.special.chdtr(check_count("df", df), float(statistic)))


@checked
def detectable_tv(cells: int, n: float, level: float, power: float = POWER) -> float:
    """Find the total variation above which `n` draws are rejected with probability ≥ `power`.

    For large n, log e ≈ log mean_c exp(½[X²·n/(n+c) - (k-1)·log(1+n/c)]) with X² Pearson's statistic; solved
    for X² this is the critical value. A deviation of total variation ε has Σδ²/π ≥ 4ε², so its X² has
    non-centrality at least 4nε²; the result is √(λ/4n), where non-centrality λ reaches the critical value
    with that power.

    Parameters
    ----------
    cells : int
        Number k of cells of the table, from 0 to `MOST_CELLS`.
    n : float
        Number of draws, ≥ 0.
    level : float
        False-alarm probability of this one test, in (0, 1): it rejects when e ≥ 1/level.
    power : float
        Probability of detection, in (0, 1).

    Returns
    -------
    float
        In (0, 1]; 1 if no deviation is detected.

    Examples
    --------
    >>> detectable_tv(4, 10_000, 1e-9) > detectable_tv(4, 1_000_000, 1e-9) > 0
    True
    >>> detectable_tv(4, 10, 1e-9)
    1.0
    """
    _check_plan(cells, level, power)
    check_between("n", n, 0, math.inf, "number of draws")
    if cells < 2 or n < 1:
        return 1.0
    wanted = _noncentrality(int(cells), float(n), float(level), float(power))
    return float(min(1.0, np.sqrt(wanted / (4.0 * n))))


@checked
def needed_draws(distance: float, cells: int, level: float, power: float = POWER) -> float:
    """Find the number of draws that reject, with probability ≥ `power`, a distribution at a distance.

    As for `detectable_tv`: n draws have non-centrality n·distance. This holds for many draws and small
    deviations; where a few draws suffice it is a rough estimate.

    Parameters
    ----------
    distance : float
        Chi-square distance Σδ²/π from the null, at least `LEAST_DISTANCE`.
    cells : int
        Number k ≥ 2 of cells of the table.
    level, power : float
        As for `detectable_tv`.

    Returns
    -------
    float
        At least 1.

    Examples
    --------
    >>> round(needed_draws(4 * detectable_tv(4, 10_000, 1e-9) ** 2, 4, 1e-9))
    10000
    """
    _check_plan(cells, level, power)
    check_count("cells", cells, 2)
    check_between("distance", distance, LEAST_DISTANCE, math.inf, "distance Σδ²/π")

    def missing(log_n: float) -> float:
        n = float(np.exp(log_n))
        return float(np.log(n * distance / _noncentrality(int(cells), n, float(level), float(power))))

    low, high = 0.0, 10.0
    if missing(low) >= 0.0:
        return 1.0
    while missing(high) < 0.0:
        low, high = high, high + 10.0
    return float(np.exp(scipy.optimize.brentq(missing, low, high, xtol=1e-6)))


def _check_plan(cells: int, level: float, power: float) -> None:
    """Raise, naming the argument, unless a test can be planned so."""
    check_count("cells", cells, 0, MOST_CELLS)
    for name, value in (("level", level), ("power", power)):
        check_between(name, value, 0, 1, "probability", "()")


@lru_cache(maxsize=2**12)  # tables of one size are many
def _noncentrality(cells: int, n: float, level: float, power: float) -> float:
    """The non-centrality of Pearson's statistic at which `n` draws are rejected with probability `power`."""
    df, c = cells - 1, cells / (4.0 * DEVIATIONS**2)
    slopes, costs, goal = 0.5 * n / (n + c), 0.5 * df * np.log1p(n / c), math.log(len(c)) - math.log(level)
    # the statistic whose log e-value reaches the level, by Newton's method: where one alternative alone does
    # is above it, and the logarithm is convex
    critical = step = float(((goal + costs) / slopes).min())
    while step > NEWTON * critical:
        logs = critical * slopes - costs
        log_sum = np.logaddexp.reduce(logs)
        step = float((log_sum - goal) / (np.exp(logs - log_sum) @ slopes))
        critical -= step
    if scipy.special.chndtr(critical, df, LEAST_NONCENTRALITY) <= 1.0 - power:
        return LEAST_NONCENTRALITY  # a power below the level: without any deviation it rejects so often
    return float(scipy.special.chndtrinc(critical, df, 1.0 - power))


@checked
def tv_interval(
    counts: ArrayLike, pmf: ArrayLike, delta: float, design_effect: float = 1.0
) -> tuple[float, float, float]:
    """Estimate the total variation between the sampled distribution and `pmf`, with an interval.

    The radius is √((k ln 2 + ln 1/δ)/2n), from the Bretagnolle–Huber–Carol inequality. Of draws that depend
    on each other, whose counts have `design_effect` times the variance of independent ones, the interval is
    approximately that of `design_effect` times fewer draws.

    Parameters
    ----------
    counts, pmf : array_like
        As for `chi_square`, of a number of draws that was fixed beforehand.
    delta : float
        In (0, 1].
    design_effect : float
        At least 0; 1 for independent draws.

    Returns
    -------
    estimate, lower, upper : float
        In [0, 1]; 0, 0 and 1 without draws. The true one is outside with probability at most `delta`.

    Examples
    --------
    >>> [round(value, 4) for value in tv_interval([52_000, 48_000], [0.5, 0.5], delta=1e-6)]
    [0.02, 0.0113, 0.0287]
    """
    observed, law = _check_table(counts, pmf)
    check_between("delta", delta, 0, 1, "probability", "(]")
    cells, n = len(law), int(observed.sum())
    estimate = float(np.abs(observed / max(1, n) - law).sum()) / 2.0
    radius = float(np.sqrt((cells * np.log(2.0) - math.log(delta)) / (2.0 * n))) if n else 1.0
    radius *= math.sqrt(design_effect)
    return estimate, max(0.0, estimate - radius), min(1.0, estimate + radius)


def _check_counts(counts: ArrayLike) -> Ints:
    check_unmasked("counts", counts)
    observed = np.asarray(counts)
    if observed.dtype.kind not in "iu":
        raise TypeError(f"counts: expected ints, got {observed.dtype}; a chi-square on shares cannot fail")
    if observed.size and observed.min() < 0:
        raise ValueError(f"counts: {observed.min()} is negative; give numbers of draws")
    if (total := observed.sum(dtype=np.float64)) > MOST_DRAWS:
        raise ValueError(f"counts: {total:,.0f} draws are more than 2^40; test fewer at a time")
    return observed.astype(np.int64)


def _check_table(counts: ArrayLike, pmf: ArrayLike) -> tuple[Ints, Floats]:
    check_unmasked("pmf", pmf)
    observed, law = _check_counts(counts), np.asarray(pmf, dtype=np.float64)
    if observed.shape != law.shape or observed.ndim != 1 or len(law) == 0:
        shapes = f"{observed.shape} and {law.shape}"
        raise ValueError(f"counts, pmf: shapes {shapes}; give both of one shape [k], k ≥ 1")
    if not ((law > 0).all() and abs(law.sum() - 1.0) <= 1e-9):
        raise ValueError("pmf: every cell must have positive probability, and they must sum to 1")
    return observed, law


# Accepted lengths: `lengths[k]` is the number of steps that accepted exactly k drafted tokens, k from 0 to
# the depth of the draft, γ for a chain.


def accepted_tokens(lengths: Ints) -> int:
    return int(lengths @ np.arange(len(lengths)))


def alpha_verified(lengths: Ints, ended: Ints | None = None) -> float:
    """Accepted / tested: a step tests the tokens that it accepts, and the one that it rejects; 0 without a
    test. `ended[k]` of `lengths[k]` steps rejected none, since their drafts ended there (default: at γ)."""
    accepted = accepted_tokens(lengths)
    rejected = lengths.sum() - (lengths[-1] if ended is None else ended.sum())
    return accepted / max(accepted + int(rejected), 1)


def alpha_verified_error(lengths: Ints, ended: Ints | None = None) -> float:
    """The standard error of `alpha_verified`, as `accepted_error`."""
    k = np.arange(len(lengths))
    if ended is None:
        ended = np.where(k == k[-1], lengths, 0)
    some = np.concatenate([lengths - ended, ended])
    return accepted_error(some, np.concatenate([k + 1, k]), np.tile(k, 2))


def accepted_error(lengths: Ints, n: Ints, k: Ints | None = None) -> float:
    """The standard error of accepted / Σn for independent steps (delta method); NaN for a single step. n is
    that of each of the `lengths`, which are of steps that accepted k tokens (default 0 … γ)."""
    steps, k = int(lengths.sum()), np.arange(len(lengths)) if k is None else k
    if steps < 2 or not lengths @ n:
        return float("nan")
    left = k - int(lengths @ k) / int(lengths @ n) * n
    # as fsum adds, which rounds alike on every machine
    return math.sqrt(math.fsum(lengths * left**2) * steps / (steps - 1)) / int(lengths @ n)


def alpha_drafted(lengths: Ints, drafted: float | None = None) -> float:
    """Accepted / drafted, the rate that engines report, for `drafted` tokens a step (default γ)."""
    return accepted_tokens(lengths) / (int(lengths.sum()) * (drafted or len(lengths) - 1))


def mean_tokens(lengths: Ints) -> tuple[float, float]:
    """Mean number of tokens that a step emits, in [1, γ+1], and its standard error."""
    k, steps = np.arange(len(lengths)), int(lengths.sum())
    mean = accepted_tokens(lengths) / steps
    return 1.0 + mean, math.sqrt(math.fsum(lengths * (k - mean) ** 2)) / steps
