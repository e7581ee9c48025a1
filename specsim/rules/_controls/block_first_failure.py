"""Wrong on purpose: block verification that stops at the first failed test.

Going forwards as token-wise verification does, x_1 … x_i are kept as long as η_i < h_i. The tests of block
verification are made to be passed over: a failure says that the block is not cut *there*. A reviewer once demanded
this change of a right kernel; it costs TV .13 in the example that was measured.

The rule that it imitates: Sun et al., arXiv 2403.10444; see `chain/block.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from specsim.core._kernels import kernel
from specsim.core.distributions import alias_draws, cumulative_draw
from specsim.rules._chain.block import excess, keep, remainder, scales, tables
from specsim.rules._common import tokenwise
from specsim.rules._common.base import FixedPair, Rule
from specsim.rules._common.fixed_pairs import alias_draw, draw_residual, residual_mass


def law(
    parents: Sequence[int], tokens: Sequence[int], p: Sequence[Sequence[Any]], q: Sequence[Sequence[Any]]
) -> tuple[list[Any], list[list[Any]]]:
    """The chances h of block, used in the order of the tokens."""
    tokenwise.require_chain("block_first_failure", parents)
    b = [1 + 0 * p[0][0]]
    for x, p_row, q_row in zip(tokens, p, q, strict=False):
        b.append(min(1, b[-1] * p_row[x] / q_row[x]))
    h = [keep(scale, p_row, q_row) for scale, p_row, q_row in zip(b, p, q, strict=False)] + [b[-1]]
    stop, reached = [], 1 + 0 * b[0]
    for chance in h[1:]:
        stop.append(reached * (1 - chance))
        reached *= chance
    follow = [remainder(scale, p_row, q_row) for scale, p_row, q_row in zip(b, p, q, strict=False)]
    return [*stop, reached], [*follow, list(p[len(tokens)])]


@kernel
def verify_rows(parents, draft_tokens, p, q, uniforms, values, tokens, accepted):  # type: ignore[no-untyped-def]
    gamma = draft_tokens.shape[1]
    weights, b = np.empty(p.shape[2]), np.empty(gamma + 1)
    for s in range(draft_tokens.shape[0]):
        scales(draft_tokens[s], p[s], q[s], b)
        n = 0
        while n < gamma:
            mass = excess(b[n + 1], p[s, n + 1], q[s, n + 1], weights) if n + 1 < gamma else b[gamma]
            whole = mass + 1.0 - b[n + 1]
            if not (uniforms[n, s] * whole < mass or whole == 0.0):
                break
            n += 1
        if n == gamma or excess(b[n], p[s, n], q[s, n], weights) == 0.0:
            weights[:] = p[s, n]
        tokens[:n, s] = draft_tokens[s, :n]
        tokens[n, s] = cumulative_draw(weights, uniforms[gamma, s])
        tokens[n + 1 :, s] = -1
        accepted[s] = n


@kernel
def verify_fixed_pair(pair, draft, ratio, draft_uniforms, verify_uniforms, tokens, accepted):  # type: ignore[no-untyped-def]
    gamma, steps = tokens.shape[0] - 1, tokens.shape[1]
    start, drawn = np.zeros(steps, np.int64), np.empty(steps, np.int64)
    b = np.ones((gamma + 1, steps))
    for i in range(gamma):
        alias_draws(draft, start, ratio.size, draft_uniforms[i], drawn)
        for s in range(steps):
            tokens[i, s] = drawn[s]
            b[i + 1, s] = min(1.0, b[i, s] * ratio[drawn[s]]) if b[i, s] > 0.0 else 0.0
    for s in range(steps):
        n = 0
        while n < gamma:
            mass = residual_mass(pair, b[n + 1, s], 1.0) if n + 1 < gamma else b[gamma, s]
            whole = mass + 1.0 - b[n + 1, s]
            if not (verify_uniforms[n, s] * whole < mass or whole == 0.0):
                break
            n += 1
        u = verify_uniforms[gamma, s]
        tokens[n, s] = alias_draw(pair.p_alias, u) if n == gamma else draw_residual(pair, b[n, s], 1.0, u)
        tokens[n + 1 :, s] = -1
        accepted[s] = n


RULE = Rule(
    name="block_first_failure",
    citation="arXiv 2403.10444, stopping at the first failure",
    draft_sampling=("sampled",),
    law=law,
    rows=verify_rows,
    uniforms=tokenwise.uniforms,
    fixed_pair=FixedPair(tables, verify_fixed_pair, tokenwise.uniforms),
    control=True,
)
