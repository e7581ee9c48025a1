"""What counts of accepted lengths say: `lengths[k]` steps, k from 0 to γ (of a tree: its depth), had exactly k accepted tokens."""

from __future__ import annotations

import numpy as np

from specsim.core.distributions import Ints

__all__ = ["accepted_tokens", "alpha_drafted", "alpha_verified", "mean_tokens"]


def accepted_tokens(lengths: Ints) -> int:
    """Drafted tokens accepted in all."""
    return int(lengths @ np.arange(len(lengths)))


def alpha_verified(lengths: Ints) -> float:
    """Accepted / positions tested: in each step the accepted ones and the rejected one."""
    accepted = accepted_tokens(lengths)
    return accepted / (accepted + int(lengths[:-1].sum()))


def alpha_drafted(lengths: Ints, drafted: int | None = None) -> float:
    """Accepted / drafted, which engines report; `drafted` tokens a step, for a chain γ."""
    return accepted_tokens(lengths) / (int(lengths.sum()) * (drafted or len(lengths) - 1))


def mean_tokens(lengths: Ints) -> tuple[float, float]:
    """Mean number of tokens that a step emits, in [1, γ+1], and its standard error.

    >>> mean_tokens(np.array([50, 50]))
    (1.5, 0.05)
    """
    k, steps = np.arange(len(lengths)), int(lengths.sum())
    mean = accepted_tokens(lengths) / steps
    return 1.0 + mean, float(np.sqrt(lengths @ (k - mean) ** 2)) / steps
