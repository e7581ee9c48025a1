"""Speed for the two quantities that documents call the acceptance rate.

One is α, the probability that a drafted token is accepted once it is tested, as in the formulas. The other is
the share of all drafted tokens that were accepted, as programs report it. For independent acceptances a step
of K tokens emits (1 - α^{K+1})/(1 - α) tokens; for any acceptances it emits K times the share, plus 1.
"""

from __future__ import annotations

from collections.abc import Callable

from experiments.literature.published.recomputed import implied_alpha
from specsim.theory import expected_tokens, optimal_gamma, walltime_improvement

__all__ = [
    "accepted_share",
    "alpha_of_share",
    "best_speed",
    "needed_alpha",
    "root",
    "speed",
    "speed_of_share",
]


def speed(alpha: float, k: int, r: float) -> float:
    """How many times faster, if each tested token passes with probability α; r is the draft's time over the
    target's.
    """
    return float(walltime_improvement(alpha, k, r))


def speed_of_share(share: float, k: int, r: float) -> float:
    """How many times faster, if that share of all drafted tokens is accepted, whatever the dependence."""
    return (share * k + 1.0) / (k * r + 1.0)


def accepted_share(alpha: float, k: int) -> float:
    """Accepted / drafted for independent acceptances."""
    return (float(expected_tokens(alpha, k)) - 1.0) / k


def alpha_of_share(share: float, k: int) -> float:
    """The α of independent acceptances with that share of drafted tokens accepted."""
    return implied_alpha(1.0 + share * k, k)


def best_speed(alpha: float, r: float) -> float:
    """The speed with the best K."""
    return speed(alpha, int(optimal_gamma(alpha, r)), r)


def needed_alpha(wanted: float, r: float) -> float:
    """The least α at which the best K is `wanted` ≥ 1 times faster; 1 if none below is."""
    most = 0.999999
    return root(lambda a: best_speed(a, r) - wanted, 0.0, most) if best_speed(most, r) >= wanted else 1.0


def root(function: Callable[[float], float], low: float, high: float) -> float:
    """Where a function that rises through 0 between `low` and `high` does so."""
    from scipy.optimize import brentq

    return float(brentq(function, low, high, xtol=1e-12))
