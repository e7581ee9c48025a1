"""Speculative cascade, token by token: the draft decides among tokens that the target finds probable enough.

With T = {v: p(v) ≥ (1 - α)·max p}, the standard rule against

    π = q·1_T + η·p,   η = 1 - q(T):

what q puts outside T is drawn again from p. min(1, π/q) is 1 on T. The bonus comes from π as well, so that q
is needed after the last drafted token too. Every token follows π exactly. T is found in floating point and
then taken as given.

Narasimhan et al., "Faster cascades via speculative decoding", arXiv 2405.19261, the third of the
token-specific rules (TokenV3). No α in its range is strict: at 0 the argmax of p is still in T.

Cost: two passes over the rows a position more than the standard rule; the same for a fixed pair."""

from typing import Any

import numpy as np

from specsim.core._kernels import inner_kernel, kernel
from specsim.core._types import Floats, Row
from specsim.rules._chain import standard
from specsim.rules._common import positions
from specsim.rules._common.tokenwise import positive_part


def pi(p: Row, q: Row, alpha: Any) -> list[Any]:
    """π, the law to be followed."""
    lowest = (1 - float(alpha)) * float(max(p))
    kept = [b if float(a) >= lowest else 0 * b for a, b in zip(p, q, strict=True)]
    eta = 1 - sum(kept)
    return [b + eta * a for a, b in zip(p, kept, strict=True)]


def acceptance(p: Row, q: Row, x: int, alpha: Any) -> Any:
    return min(1, pi(p, q, alpha)[x] / q[x])


def recovered(p: Row, q: Row, x: int, alpha: Any) -> list[Any]:
    return positive_part(pi(p, q, alpha), q)


def declared(p: Row, q: Row, position: int, alpha: Any) -> list[Any]:
    largest = float(max(p))
    trusted = {v for v, weight in enumerate(p) if not float(weight) < (1 - float(alpha)) * largest}
    redrawn = sum(weight for v, weight in enumerate(q) if v not in trusted)
    return [(v in trusted) * q[v] + redrawn * weight for v, weight in enumerate(p)]


@inner_kernel
def redrawn(p, q, lowest):
    """η: what q puts on tokens outside T, those less probable than `lowest`."""
    eta = 0.0
    for y in range(p.size):
        if p[y] < lowest:
            eta += q[y]
    return eta


@kernel
def accept(p, q, x, u, values):
    lowest = (1.0 - values[0]) * p.max()
    return p[x] >= lowest or u * q[x] < redrawn(p, q, lowest) * p[x]


@kernel
def bonus(p, q, values, weights):
    lowest = (1.0 - values[0]) * p.max()
    eta = redrawn(p, q, lowest)
    for y in range(weights.size):
        weights[y] = eta * p[y]
        if p[y] >= lowest:
            weights[y] += q[y]


@kernel
def recover(p, q, x, values, weights):
    bonus(p, q, values, weights)
    for y in range(weights.size):
        weights[y] = max(weights[y] - q[y], 0.0)


def shares(p: Floats, q: Floats, alpha: float) -> tuple[Floats, Floats, Floats]:
    followed = np.empty(p.size)
    bonus(p, q, np.array([alpha]), followed)
    return standard.shares(followed, q)


RULE = positions.rule(
    "cascade_token", (acceptance, recovered, pi), (accept, recover, bonus), shares, declared=declared
)
