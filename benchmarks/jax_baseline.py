"""The jitted JAX program that a good user would write, pinned: a rival of the engine.

Single precision, batches of 8,192 steps in one `fori_loop`; drafts from alias tables, acceptance by cumprod,
counts by scattered additions. Of inverse distributions and alias tables, of the generators threefry and rbg,
and of batches of 8,192 and 50,000, these were the fastest on a CPU. It counts what `specsim.simulate` counts.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from specsim.core.distributions import alias_table

BATCH = 8192


def simulation(p: NDArray[np.float64], q: NDArray[np.float64], gamma: int) -> Callable[[int], Any]:
    """A function of the number of batches; it returns lengths [γ+1] and emitted tokens [V+1]."""
    size = p.size
    draft, last = _table(q), [_table(np.maximum(p - q, 0.0)), _table(p)]
    thresholds, aliases = (jnp.concatenate(parts) for parts in zip(*last, strict=True))
    accept = jnp.asarray(np.minimum(1.0, p / q), jnp.float32)
    positions = jnp.arange(gamma + 1)[:, None]

    def body(_: int, carry: Any) -> Any:
        key, lengths, tokens = carry
        key, used = jax.random.split(key)
        u = jax.random.uniform(used, (2 * gamma + 1, BATCH), jnp.float32)
        drafted = _draws(*draft, u[:gamma], size, 0)
        passed = (u[gamma : 2 * gamma] < accept[drafted]).astype(jnp.int32)
        accepted = jnp.cumprod(passed, axis=0).sum(0)
        final = _draws(thresholds, aliases, u[2 * gamma], size, size * (accepted == gamma))
        emitted = jnp.where(positions == accepted, final, jnp.concatenate([drafted, final[None]]))
        kept = jnp.where(positions <= accepted, emitted, size)
        return key, lengths.at[accepted].add(1), tokens.at[kept.ravel()].add(1)

    @partial(jax.jit, static_argnums=1)
    def run(key: Any, batches: int) -> Any:
        zeros = jnp.zeros(gamma + 1, jnp.int32), jnp.zeros(size + 1, jnp.int32)
        return jax.lax.fori_loop(0, batches, body, (key, *zeros))[1:]

    return lambda batches: jax.block_until_ready(run(jax.random.key(1), batches))


def _table(weights: NDArray[np.float64]) -> tuple[Any, Any]:
    words = alias_table(weights)
    return jnp.asarray((words >> 32) / 2.0**31, jnp.float32), jnp.asarray(words & 0xFFFFFFFF, jnp.int32)


def _draws(thresholds: Any, aliases: Any, u: Any, size: int, start: Any) -> Any:
    scaled = u * size
    column = jnp.minimum(scaled.astype(jnp.int32), size - 1)
    at = column + start
    return jnp.where(scaled - column < thresholds[at], column, aliases[at])
