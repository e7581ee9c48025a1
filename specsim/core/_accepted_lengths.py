"""Statistics of accepted lengths: `lengths[k]` is the number of steps that accepted exactly k drafted tokens.

k goes from 0 to the depth of the draft, γ for a chain."""

import numpy as np

from specsim.core._types import Ints


def accepted_tokens(lengths: Ints) -> int:
    return int(lengths @ np.arange(len(lengths)))


def alpha_verified(lengths: Ints) -> float:
    """Accepted / tested: a step tests the tokens that it accepts, and the one that it rejects."""
    accepted = accepted_tokens(lengths)
    return accepted / (accepted + int(lengths[:-1].sum()))


def alpha_verified_error(lengths: Ints) -> float:
    """The standard error of `alpha_verified`, as `accepted_error`."""
    return accepted_error(lengths, np.minimum(np.arange(len(lengths)) + 1, len(lengths) - 1))


def accepted_error(lengths: Ints, n: Ints) -> float:
    """The standard error of accepted / Σn for independent steps (delta method); NaN for a single step.

    n [γ+1] is by accepted length."""
    steps, k = int(lengths.sum()), np.arange(len(lengths))
    if steps < 2:
        return float("nan")
    left = k - accepted_tokens(lengths) / int(lengths @ n) * n
    return float(np.sqrt(lengths @ left**2 * steps / (steps - 1)) / (lengths @ n))


def alpha_drafted(lengths: Ints, drafted: int | None = None) -> float:
    """Accepted / drafted, the rate that engines report, for `drafted` tokens a step (default γ)."""
    return accepted_tokens(lengths) / (int(lengths.sum()) * (drafted or len(lengths) - 1))


def mean_tokens(lengths: Ints) -> tuple[float, float]:
    """Mean number of tokens that a step emits, in [1, γ+1], and its standard error."""
    k, steps = np.arange(len(lengths)), int(lengths.sum())
    mean = accepted_tokens(lengths) / steps
    return 1.0 + mean, float(np.sqrt(lengths @ (k - mean) ** 2)) / steps
