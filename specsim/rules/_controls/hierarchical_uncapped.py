"""Wrong on purpose: hierarchical speculative decoding without the cap.

The joint ratio J_i = Π p/q is used as it is: accept the whole draft with probability min(1, J_γ), step back
by comparing J_i·p with q. A prefix that is more probable under the target then transfers its surplus to
unlikely continuations. TV up to .25. (The public code caps all but the last ratio, which accepts as much as
the min-joint bound for γ ≤ 2 and is biased too.)

The rule that it imitates: Zhou et al., arXiv 2601.05724; see `_chain/hierarchical.py`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from specsim.core._kernels import kernel
from specsim.core._types import Row
from specsim.rules._chain.hierarchical import backward_law, step_back
from specsim.rules._common import tokenwise
from specsim.rules._common.base import Rule
from specsim.rules._common.fixed_pairs import fixed_pair_from_rows

#: A joint ratio beyond this is as good as infinite.
LARGEST = 1e100


def law(
    parents: Sequence[int], tokens: Sequence[int], p: Sequence[Row], q: Sequence[Row]
) -> tuple[list[Any], list[list[Any]]]:
    """As hierarchical, with J in place of the capped ratio before the last."""
    tokenwise.require_chain("hierarchical_uncapped", parents)
    joint = [1 + 0 * p[0][0]]
    for x, p_row, q_row in zip(tokens, p, q, strict=False):
        joint.append(joint[-1] * p_row[x] / q_row[x])
    return backward_law([*joint[:-1], min(joint[-1], 1)], p, q)


@kernel
def verify_rows(parents, draft_tokens, p, q, uniforms, values, tokens, accepted):
    gamma = draft_tokens.shape[1]
    weights, ratios, path = np.empty(p.shape[2]), np.empty(gamma + 1), np.empty(gamma + 1, np.int64)
    for s in range(draft_tokens.shape[0]):
        ratios[0] = 1.0
        for i in range(gamma):
            x = draft_tokens[s, i]
            ratios[i + 1] = min(ratios[i] * p[s, i, x] / q[s, i, x], LARGEST) if ratios[i] > 0.0 else 0.0
        accepted[s] = step_back(ratios, p[s], q[s], draft_tokens[s], uniforms[:, s], weights, path)
        for i in range(gamma + 1):
            tokens[i, s] = path[i]


RULE = Rule(
    name="hierarchical_uncapped",
    citation="arXiv 2601.05724 without its cap",
    draft_sampling=("sampled",),
    law=law,
    rows=verify_rows,
    fixed_pair=fixed_pair_from_rows(verify_rows),
    control=True,
)
