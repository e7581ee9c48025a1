"""Wrong on purpose: block verification followed by a token from the standard residual (p - q)₊.

Two kernels are combined, each of them right. The first token is perfect, as b_0 = 1; later ones deviate a
little, so that a test of the first token's marginal cannot detect the bug.

The rule that it imitates: Sun et al., arXiv 2403.10444; see `_chain/block.py`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from specsim.core._kernels import kernel
from specsim.core._types import Row
from specsim.core.distributions import copy_row, cumulative_draw
from specsim.rules._chain import block
from specsim.rules._common import tokenwise
from specsim.rules._common.base import Rule
from specsim.rules._common.fixed_pairs import fixed_pair_from_rows

block_rows, block_excess = block.verify_rows, block.excess


def law(
    parents: Sequence[int], tokens: Sequence[int], p: Sequence[Row], q: Sequence[Row]
) -> tuple[list[Any], list[list[Any]]]:
    """As block, but for what follows."""
    stop, follow = block.law(parents, tokens, p, q)
    residuals = [tokenwise.positive_part(a, b) for a, b in zip(p, q, strict=False)]
    return stop, [*residuals, follow[-1]]


@kernel
def verify_rows(parents, draft_tokens, p, q, uniforms, values, tokens, accepted):
    block_rows(parents, draft_tokens, p, q, uniforms, values, tokens, accepted)
    weights = np.empty(p.shape[2])
    gamma = draft_tokens.shape[1]
    for s in range(draft_tokens.shape[0]):
        n = accepted[s]
        if n < gamma:
            if block_excess(1.0, p[s, n], q[s, n], weights) == 0.0:
                copy_row(p[s, n], weights)
            tokens[n, s] = cumulative_draw(weights, uniforms[gamma, s])


RULE = Rule(
    name="block_tokenwise_residual",
    citation="arXiv 2403.10444 with the residual of arXiv 2211.17192",
    draft_sampling=("sampled",),
    law=law,
    rows=verify_rows,
    fixed_pair=fixed_pair_from_rows(verify_rows),
    control=True,
)
