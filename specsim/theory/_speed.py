"""Speed-ups: wall time, operations, memory accesses, and the best γ.

All formulas assume independent acceptances of one probability α, and that γ+1 parallel positions of the
target take as long as one; `specsim.planning` has better models. Theorem numbers are those of
Leviathan, Kalman & Matias, arXiv 2211.17192. Arguments outside the ranges given here raise ValueError."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specsim.core._types import Floats, check_count, checked
from specsim.theory._acceptance import check_alpha_gamma, expected_tokens, plain

#: γ beyond which `optimal_gamma` does not look.
MAX_GAMMA = 1000


@checked
def walltime_improvement(alpha: ArrayLike, gamma: ArrayLike, c: ArrayLike) -> Floats | float:
    """(1 - α^{γ+1})/((1 - α)(γc + 1)), the speed-up over the target alone (Theorem 3.8).

    Parameters
    ----------
    alpha, gamma, c : array_like
        α, accepted / tested tokens, in [0, 1], γ ≥ 0 drafted tokens a step, and the time of a draft's pass
        over the target's, ≥ 0, which broadcast.

    Returns
    -------
    float or ndarray of the broadcast shape

    Examples
    --------
    >>> round(walltime_improvement(0.8, 5, 0.05), 4)
    2.9514
    """
    return plain(expected_tokens(alpha, gamma) / (np.asarray(gamma) * _check_ratio(c, "c") + 1.0))


@checked
def operations_factor(alpha: ArrayLike, gamma: ArrayLike, c_hat: ArrayLike) -> Floats | float:
    """(1 - α)(γĉ + γ + 1)/(1 - α^{γ+1}), operations per token relative to the target alone (Theorem 3.11).

    Parameters
    ----------
    alpha, gamma, c_hat : array_like
        As for `walltime_improvement`, with ĉ the draft's operations for one token over the target's.

    Returns
    -------
    float or ndarray of the broadcast shape
        At least 1.

    Examples
    --------
    >>> round(operations_factor(0.8, 5, 0.0), 4)
    1.6263
    """
    g = np.asarray(gamma, dtype=np.float64)
    return plain((g * _check_ratio(c_hat, "c_hat") + g + 1.0) / expected_tokens(alpha, gamma))


@checked
def memory_access_factor(alpha: ArrayLike, gamma: ArrayLike) -> Floats | float:
    """(1 - α)/(1 - α^{γ+1}), reads of weights and cache per token over the target's (section 3.5).

    Parameters
    ----------
    alpha, gamma : array_like
        As for `walltime_improvement`.

    Returns
    -------
    float or ndarray of the broadcast shape
        In [1/(γ + 1), 1].

    Examples
    --------
    >>> round(memory_access_factor(0.8, 5), 4)
    0.2711
    """
    return plain(1.0 / np.asarray(expected_tokens(alpha, gamma)))


class BreakEven(NamedTuple):
    """Whether some γ gains, and the gain that γ = 1 then reaches; 1 where none gains."""

    helps: NDArray[np.bool_] | bool
    improvement: Floats | float


@checked
def break_even(alpha: ArrayLike, c: ArrayLike) -> BreakEven:
    """Speculation gains for some γ iff α > c, and then by at least (1 + α)/(1 + c) (Corollary 3.9).

    Parameters
    ----------
    alpha, c : array_like
        As for `walltime_improvement`.

    Returns
    -------
    BreakEven
        `helps` and `improvement`, each of the broadcast shape.

    Examples
    --------
    >>> break_even(0.6, 0.05)
    BreakEven(helps=True, improvement=1.5238095238095237)
    >>> break_even(0.1, 0.2)
    BreakEven(helps=False, improvement=1.0)
    """
    a, ratio = np.broadcast_arrays(check_alpha_gamma(alpha, 1)[0], _check_ratio(c, "c"))
    helps = a > ratio
    improvement = np.where(helps, (1.0 + a) / (1.0 + ratio), 1.0)
    return BreakEven(bool(helps) if helps.ndim == 0 else helps, plain(improvement))


@checked
def optimal_gamma(alpha: ArrayLike, c: ArrayLike, max_gamma: int = MAX_GAMMA) -> NDArray[np.int64] | int:
    """The smallest γ with the largest `walltime_improvement`; 0 means that speculation does not gain.

    E[tokens] is concave in γ and the time is linear, so that the improvement rises to a single maximum, up to
    the first γ with α^{γ+1}(γc + 1) ≤ c·E[tokens], which a bisection finds.

    Parameters
    ----------
    alpha, c : array_like
        As for `walltime_improvement`.
    max_gamma : int
        The largest γ to consider, at least 1.

    Returns
    -------
    int or ndarray of the broadcast shape
        From 0 to `max_gamma`.

    Examples
    --------
    >>> optimal_gamma(0.8, 0.05)
    8
    >>> optimal_gamma([0.5, 0.9], 0.01).tolist()
    [5, 24]
    """
    check_count("max_gamma", max_gamma)
    a, ratio = np.broadcast_arrays(check_alpha_gamma(alpha, 1)[0], _check_ratio(c, "c"))
    low, high = np.zeros(a.shape, dtype=np.int64), np.full(a.shape, max_gamma, dtype=np.int64)
    while (low < high).any():
        middle = (low + high) // 2
        rises = a ** (middle + 1) * (middle * ratio + 1.0) > ratio * expected_tokens(a, middle)
        low, high = np.where(rises & (low < high), middle + 1, low), np.where(rises, high, middle)
    return int(low) if low.ndim == 0 else low


@checked
def oracle_improvement(alpha: ArrayLike, c: ArrayLike) -> Floats | float:
    """[1/(1 - α)]/(1 + cα/(1 - α)), the speed-up if only tokens that will be accepted are drafted.

    Steps then emit 1/(1 - α) tokens and draft one less. At α = 1 the limit is 1/c. The paper asks for this in
    section 3.3 and gives no formula.

    Parameters
    ----------
    alpha, c : array_like
        As for `walltime_improvement`.

    Returns
    -------
    float or ndarray of the broadcast shape

    Raises
    ------
    ValueError
        Outside these ranges, and for α = 1 with c = 0.

    Examples
    --------
    >>> round(oracle_improvement(0.9, 0.05), 4)
    6.8966
    """
    a, ratio = np.broadcast_arrays(check_alpha_gamma(alpha, 1)[0], _check_ratio(c, "c"))
    time = (1.0 - a) + ratio * a
    if (time == 0).any():
        raise ValueError("alpha, c: 1 and 0 gain without bound; give alpha below 1 or c above 0")
    return plain(1.0 / time)


def _check_ratio(value: ArrayLike, name: str) -> Floats:
    ratio = np.asarray(value, dtype=np.float64)
    wrong = ~((ratio >= 0) & np.isfinite(ratio))
    if wrong.any():
        raise ValueError(f"{name}: {ratio[wrong].flat[0]} is not a ratio ≥ 0; give a finite one")
    return ratio
