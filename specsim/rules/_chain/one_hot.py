"""One-hot verification: accept x with probability p(x), else draw from p without it.

The standard rule for a draft row that is certain of the drafted token: min(1, p(x)/1) = p(x), residual (p -
1_x)₊. It never looks at q, so it is lossless for whatever drafts: taken from an n-gram or the prompt, the
argmax of a draft model, or sampled from q. For sampled drafts it accepts less than the standard rule, Σ p·q
instead of Σ min(p, q); that costs speed, never exactness.

vLLM verifies so where no draft probabilities are handed over; EAGLE-2 and EAGLE-3 (Li et al., arXiv
2406.16858) verify their top-k children so, see `_tree/deterministic_children.py`. The mathematics is
Algorithm 1 of Leviathan, Kalman & Matias, arXiv 2211.17192, at a one-hot q.

Cost: γ + 1 uniforms a step; O(V) for the recovered token from rows, O(log V) for a fixed pair, because a
different token is left out each time."""

from typing import Any

from specsim.core._kernels import inner_kernel
from specsim.core._types import Floats, Row
from specsim.core.distributions import copy_row
from specsim.rules._common import tokenwise
from specsim.rules._common.fixed_pairs import draw_without


def acceptance(p: Row, q: Row, x: int) -> Any:
    return p[x]


def recovered(p: Row, q: Row, x: int) -> list[Any]:
    """p without x; p itself where nothing is left, which follows no rejection."""
    left = [weight * (y != x) for y, weight in enumerate(p)]
    return tokenwise.normalise(left) if any(left) else list(p)


@inner_kernel
def accept(p, q, x, u, values):
    return u < p[x]


@inner_kernel
def recover(p, q, x, values, weights):
    copy_row(p, weights)
    weights[x] = 0.0


def shares(p: Floats, q: Floats) -> tuple[Floats, Floats]:
    return p, p


@inner_kernel
def draw(pair, numbers, x, tested, u):
    return draw_without(pair.p, pair.p_sums, pair.p_guide, (x,), u)


RULE = tokenwise.rule(
    "one_hot",
    (acceptance, recovered),
    (accept, recover),
    tokenwise.fixed_pair_by_token(shares, draw),
    survival=tokenwise.survival(lambda p, q: p),
)
