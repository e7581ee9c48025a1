"""Wrong on purpose: hierarchical speculative decoding without the cap.

The joint ratio J_i = Π p/q is used as it is: accept the whole draft with probability min(1, J_γ), step back by comparing
J_i·p with q. A prefix that the target likes better than the draft then lends its surplus to unlikely continuations.
TV up to .25. (The public code caps all but the last ratio, which accepts as much as the min-joint bound for γ ≤ 2 and is
biased too.)

The rule that it imitates: Zhou et al., arXiv 2601.05724; see `chain/hierarchical.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from specsim.core._kernels import kernel
from specsim.core.distributions import alias_draws
from specsim.rules._chain.block import tables
from specsim.rules._chain.hierarchical import backward_law, step_back
from specsim.rules._common import tokenwise
from specsim.rules._common.base import FixedPair, Rule
from specsim.rules._common.fixed_pairs import alias_draw, draw_residual, residual_mass

#: A joint ratio beyond this is as good as infinite.
LARGEST = 1e100


def law(
    parents: Sequence[int], tokens: Sequence[int], p: Sequence[Sequence[Any]], q: Sequence[Sequence[Any]]
) -> tuple[list[Any], list[list[Any]]]:
    """As hierarchical, with J in place of the capped ratio before the last."""
    tokenwise.require_chain("hierarchical_uncapped", parents)
    joint = [1 + 0 * p[0][0]]
    for x, p_row, q_row in zip(tokens, p, q, strict=False):
        joint.append(joint[-1] * p_row[x] / q_row[x])
    return backward_law([*joint[:-1], min(joint[-1], 1)], p, q)


@kernel
def verify_rows(parents, draft_tokens, p, q, uniforms, values, tokens, accepted):  # type: ignore[no-untyped-def]
    gamma = draft_tokens.shape[1]
    weights, ratios, path = np.empty(p.shape[2]), np.empty(gamma + 1), np.empty(gamma + 1, np.int64)
    for s in range(draft_tokens.shape[0]):
        ratios[0] = 1.0
        for i in range(gamma):
            x = draft_tokens[s, i]
            ratios[i + 1] = min(ratios[i] * p[s, i, x] / q[s, i, x], LARGEST) if ratios[i] > 0.0 else 0.0
        accepted[s] = step_back(ratios, p[s], q[s], draft_tokens[s], uniforms[:, s], weights, path)
        tokens[:, s] = path


@kernel
def verify_fixed_pair(pair, draft, ratio, draft_uniforms, verify_uniforms, tokens, accepted):  # type: ignore[no-untyped-def]
    gamma, steps = tokens.shape[0] - 1, tokens.shape[1]
    start, drawn = np.zeros(steps, np.int64), np.empty(steps, np.int64)
    joint = np.ones((gamma + 1, steps))
    for i in range(gamma):
        alias_draws(draft, start, ratio.size, draft_uniforms[i], drawn)
        for s in range(steps):
            tokens[i, s] = drawn[s]
            joint[i + 1, s] = min(joint[i, s] * ratio[drawn[s]], LARGEST) if joint[i, s] > 0.0 else 0.0
    for s in range(steps):
        n = gamma
        u = verify_uniforms[gamma, s]
        if verify_uniforms[gamma - 1, s] < joint[gamma, s]:
            tokens[n, s] = alias_draw(pair.p_alias, u)
        else:
            for n in range(gamma - 1, -1, -1):
                more = residual_mass(pair, joint[n, s], 1.0)
                less = more + 1.0 - joint[n, s]
                if n == 0 or verify_uniforms[n - 1, s] * max(more, less) < more:
                    break
            tokens[n, s] = draw_residual(pair, joint[n, s], 1.0, u)
        tokens[n + 1 :, s] = -1
        accepted[s] = n


RULE = Rule(
    name="hierarchical_uncapped",
    citation="arXiv 2601.05724 without its cap",
    draft_sampling=("sampled",),
    law=law,
    rows=verify_rows,
    uniforms=tokenwise.uniforms,
    fixed_pair=FixedPair(tables, verify_fixed_pair, tokenwise.uniforms),
    control=True,
)
