"""Wrong on purpose: the draft is restricted to the shared tokens, and its row is not renormalised.

Given that a drafted token is shared it is a sample of q' = q·1_S/q(S), but is compared with q·1_S, which is
smaller: more drafts are accepted than p allows, and the residual (p - q·1_S)₊ gives back too little to tokens
that the draft lacks.

The rule that it imitates: Timor et al., arXiv 2502.05202; see `_chain/token_level_intersection.py`.
"""

from typing import Any

from specsim.core._kernels import inner_kernel
from specsim.core._parameters import Parameter
from specsim.core._types import Row
from specsim.core.distributions import copy_row
from specsim.rules._chain.token_level_intersection import is_shared
from specsim.rules._common import tokenwise
from specsim.rules._common.base import Rule
from specsim.rules._common.fixed_pairs import fixed_pair_from_rows


def acceptance(p: Row, q: Row, x: int, shared: Any) -> Any:
    return min(1, p[x] / q[x]) if is_shared(x, len(q), shared) else 0


def recovered(p: Row, q: Row, x: int, shared: Any) -> list[Any]:
    kept = [b * is_shared(y, len(q), shared) for y, b in enumerate(q)]
    return tokenwise.positive_part(p, kept) if is_shared(x, len(q), shared) else list(p)


@inner_kernel
def accept(p, q, x, u, values):
    return x < values[0] * q.size and u * q[x] < p[x]


@inner_kernel
def recover(p, q, x, values, weights):
    copy_row(p, weights)
    if x < values[0] * q.size:
        for y in range(weights.size):
            if y < values[0] * q.size:
                weights[y] = max(p[y] - q[y], 0.0)


verify_rows = tokenwise.rows(accept, recover)

RULE = Rule(
    name="intersection_unnormalised",
    citation="arXiv 2502.05202 without renormalising",
    draft_sampling=("sampled",),
    law=tokenwise.law("intersection_unnormalised", acceptance, recovered),
    rows=verify_rows,
    fixed_pair=fixed_pair_from_rows(verify_rows),
    parameters=(Parameter("shared", 0.5, 0.0, 1.0, "the share of the ids, from 0 on, that both have"),),
    control=True,
)
