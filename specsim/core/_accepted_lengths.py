"""Statistics of accepted lengths: `lengths[k]` is the number of steps that accepted exactly k drafted tokens.

k goes from 0 to the depth of the draft, γ for a chain."""

import numpy as np

from specsim.core._types import Ints


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
    return float(np.sqrt(lengths @ left**2 * steps / (steps - 1)) / (lengths @ n))


def alpha_drafted(lengths: Ints, drafted: float | None = None) -> float:
    """Accepted / drafted, the rate that engines report, for `drafted` tokens a step (default γ)."""
    return accepted_tokens(lengths) / (int(lengths.sum()) * (drafted or len(lengths) - 1))


def mean_tokens(lengths: Ints) -> tuple[float, float]:
    """Mean number of tokens that a step emits, in [1, γ+1], and its standard error."""
    k, steps = np.arange(len(lengths)), int(lengths.sum())
    mean = accepted_tokens(lengths) / steps
    return 1.0 + mean, float(np.sqrt(lengths @ (k - mean) ** 2)) / steps
