"""Wrong on purpose: block verification's acceptance, but the token after it from the standard residual (p - q)₊.

The mistake of combining two kernels, each of them right. The first token is perfect, as b_0 = 1; later ones are
not, by little: the classic bug that a test of the first token's marginal cannot see.

The rule that it imitates: Sun et al., arXiv 2403.10444; see `chain/block.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from specsim.core._kernels import kernel
from specsim.core.distributions import Floats, alias_table, cumulative_draw
from specsim.drafts import Tree
from specsim.rules._chain import block
from specsim.rules._common import tokenwise
from specsim.rules._common.base import FixedPair, Rule
from specsim.rules._common.fixed_pairs import alias_draw

block_rows, block_fixed_pair, block_excess = block.verify_rows, block.verify_fixed_pair, block.excess


def law(
    parents: Sequence[int], tokens: Sequence[int], p: Sequence[Sequence[Any]], q: Sequence[Sequence[Any]]
) -> tuple[list[Any], list[list[Any]]]:
    """As block, but for what follows."""
    stop, follow = block.law(parents, tokens, p, q)
    residuals = [tokenwise.positive_part(a, b) for a, b in zip(p, q, strict=False)]
    return stop, [*residuals, follow[-1]]


@kernel
def verify_rows(parents, draft_tokens, p, q, uniforms, values, tokens, accepted):  # type: ignore[no-untyped-def]
    block_rows(parents, draft_tokens, p, q, uniforms, values, tokens, accepted)
    weights = np.empty(p.shape[2])
    gamma = draft_tokens.shape[1]
    for s in range(draft_tokens.shape[0]):
        n = accepted[s]
        if n < gamma:
            if block_excess(1.0, p[s, n], q[s, n], weights) == 0.0:
                weights[:] = p[s, n]
            tokens[n, s] = cumulative_draw(weights, uniforms[gamma, s])


def tables(p: Floats, q: Floats, tree: Tree) -> tuple[Any, ...]:
    """Block's, and the residual's alias table."""
    residual = np.maximum(p - q, 0.0)
    return *block.tables(p, q, tree), alias_table(residual if residual.any() else p)


@kernel
def verify_fixed_pair(  # type: ignore[no-untyped-def]
    pair, draft, ratio, residual, draft_uniforms, verify_uniforms, tokens, accepted
):
    block_fixed_pair(pair, draft, ratio, draft_uniforms, verify_uniforms, tokens, accepted)
    gamma = tokens.shape[0] - 1
    for s in range(accepted.size):
        if accepted[s] < gamma:
            tokens[accepted[s], s] = alias_draw(residual, verify_uniforms[gamma, s])


RULE = Rule(
    name="block_tokenwise_residual",
    citation="arXiv 2403.10444 with the residual of arXiv 2211.17192",
    draft_sampling=("sampled",),
    law=law,
    rows=verify_rows,
    uniforms=tokenwise.uniforms,
    fixed_pair=FixedPair(tables, verify_fixed_pair, tokenwise.uniforms),
    control=True,
)
