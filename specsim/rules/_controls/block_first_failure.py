"""Wrong on purpose: block verification that stops at the first failed test.

As in token-wise verification, x_1 … x_i are kept as long as η_i < h_i. But a failed test of block
verification only says that the block is not cut *there*; later tests may still keep more tokens. A reviewer
once demanded this change in a correct kernel; in the measured example it costs TV .13.

The rule that it imitates: Sun et al., arXiv 2403.10444; see `_chain/block.py`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from specsim.core._kernels import kernel
from specsim.core._types import Row
from specsim.core.distributions import copy_row, cumulative_draw
from specsim.rules._chain.block import excess, next_tokens, scales, scales_and_cuts
from specsim.rules._common import tokenwise
from specsim.rules._common.base import Rule
from specsim.rules._common.fixed_pairs import fixed_pair_from_rows


def law(
    parents: Sequence[int], tokens: Sequence[int], p: Sequence[Row], q: Sequence[Row]
) -> tuple[list[Any], list[list[Any]]]:
    """The chances h of block, used in the order of the tokens."""
    tokenwise.require_chain("block_first_failure", parents)
    b, h = scales_and_cuts(tokens, p, q)
    stop, reached = [], 1 + 0 * b[0]
    for chance in h[1:]:
        stop.append(reached * (1 - chance))
        reached *= chance
    return [*stop, reached], next_tokens(b, p, q)


@kernel
def verify_rows(parents, draft_tokens, p, q, uniforms, values, tokens, accepted):
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
            copy_row(p[s, n], weights)
        for i in range(n):
            tokens[i, s] = draft_tokens[s, i]
        tokens[n, s] = cumulative_draw(weights, uniforms[gamma, s])
        tokens[n + 1 :, s] = -1
        accepted[s] = n


RULE = Rule(
    name="block_first_failure",
    citation="arXiv 2403.10444, stopping at the first failure",
    draft_sampling=("sampled",),
    law=law,
    rows=verify_rows,
    fixed_pair=fixed_pair_from_rows(verify_rows),
    control=True,
)
