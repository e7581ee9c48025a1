"""The vectorised NumPy program that a good user would write, pinned: what the engine is measured against.

One thread, SFC64, batches of 50 000 steps; drafts by searchsorted, acceptance by cumprod, counts by bincount.
It counts what `specsim.simulate` counts: accepted lengths and emitted tokens.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

BATCH = 50_000


def simulate(
    p: NDArray[np.float64], q: NDArray[np.float64], gamma: int, steps: int, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Lengths [γ+1] and emitted tokens [V] of `steps` steps, a multiple of `BATCH`."""
    rng = np.random.Generator(np.random.SFC64(seed))
    vocab_size = p.size
    draft_cdf, bonus_cdf = _cdf(q), _cdf(p)
    residual_cdf = _cdf(np.maximum(p - q, 0.0))
    lengths = np.zeros(gamma + 1, dtype=np.int64)
    tokens = np.zeros(vocab_size, dtype=np.int64)
    for _ in range(steps // BATCH):
        drafted = np.searchsorted(draft_cdf, rng.random((BATCH, gamma)), side="right")
        passed = rng.random((BATCH, gamma)) * q[drafted] < p[drafted]
        accepted = passed.cumprod(axis=1).sum(axis=1)
        u = rng.random(BATCH)
        last = np.where(
            accepted == gamma,
            np.searchsorted(bonus_cdf, u, side="right"),
            np.searchsorted(residual_cdf, u, side="right"),
        )
        emitted = np.concatenate([drafted, last[:, None]], axis=1)
        emitted[np.arange(BATCH), accepted] = last
        kept = np.arange(gamma + 1) <= accepted[:, None]
        lengths += np.bincount(accepted, minlength=gamma + 1)
        tokens += np.bincount(emitted[kept], minlength=vocab_size)
    return lengths, tokens


def _cdf(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    cdf = np.cumsum(weights)
    return cdf / cdf[-1]
