"""Wrong on purpose: acceptance-rejection with an envelope that differs from token to token.

With c(x) ≥ max(1, p(x)/q(x)) in place of the one number M of `_chain/von_neumann.py`, a proposal x ~ q passes
with probability p(x)/(c(x)·q(x)), and proposals go on until one does. What comes out is ∝ p/c. Lecture notes
call this a variant whose correctness is unchanged; it is not. Here c = max(1, p/q), the tightest: a proposal
passes with min(1, p/q), as in the standard rule, and since rejected ones are proposed anew from q, not drawn
from the residual, the output is ∝ min(p, q).

After Leviathan, Kalman & Matias, arXiv 2211.17192, Appendix A.2, on rejection sampling with one envelope M.
"""

from typing import Any

import numpy as np

from specsim.core._kernels import kernel
from specsim.core._types import Floats, Row
from specsim.core.distributions import capped_ratio
from specsim.rules._chain.standard import accept, acceptance
from specsim.rules._common import tokenwise
from specsim.rules._common.base import Rule


def recovered(p: Row, q: Row, x: int) -> list[Any]:
    """The first later proposal that passes."""
    passing = [min(a, b) for a, b in zip(p, q, strict=True)]
    return tokenwise.normalise(passing) if any(passing) else list(p)


@kernel
def recover(p, q, x, values, weights):
    for y in range(weights.size):
        weights[y] = min(p[y], q[y])


def shares(p: Floats, q: Floats) -> tuple[Floats, Floats, Floats]:
    return capped_ratio(p, q), np.minimum(p, q), p


RULE = Rule(
    name="pointwise_envelope",
    citation="lecture notes on von Neumann's acceptance-rejection",
    draft_sampling=("sampled",),
    law=tokenwise.law("pointwise_envelope", acceptance, recovered),
    rows=tokenwise.rows(accept, recover),
    fixed_pair=tokenwise.fixed_pair(shares),
    control=True,
)
