"""Non-iterative rejection sampling: accept with probability p(x)/(M·q(x)), else draw from p itself.

M = max p/q over all tokens with p > 0. Accepted tokens and those after a rejection both follow p, and so does
the output, whatever the probability of acceptance, Σ_x q(x)·p(x)/(M·q(x)) = 1/M. That is never more than Σ
min(p, q), the standard rule's, since p/M ≤ min(p, q) for M ≥ 1. If a token with p > 0 has q = 0, M is
infinite and nothing is accepted; a maximum over the tokens with q > 0 alone is a mistake that costs up to TV
.8.

Lossless for a chain whose every token was sampled from the q handed over.

Leviathan, Kalman & Matias, arXiv 2211.17192, Appendix A.2, the non-iterative version.

Cost: γ + 1 uniforms a step; O(V) a position from rows, O(1) for a fixed pair."""

from typing import Any

import numpy as np

from specsim.core._kernels import inner_kernel
from specsim.core._types import Floats, Row
from specsim.core.distributions import copy_row
from specsim.rules._common import positions


def acceptance(p: Row, q: Row, x: int) -> Any:
    if any(a > 0 and b == 0 for a, b in zip(p, q, strict=True)):
        return 0 * p[x]
    largest = max(a / b for a, b in zip(p, q, strict=True) if a > 0)
    return p[x] / q[x] / largest


def recovered(p: Row, q: Row, x: int) -> list[Any]:
    return list(p)


@inner_kernel
def envelope(p, q):
    """M = max p/q over p > 0, infinite where q does not cover p."""
    largest = 0.0
    for y in range(p.size):
        if p[y] > 0.0:
            if q[y] == 0.0:
                return np.inf
            largest = max(largest, p[y] / q[y])
    return largest


@inner_kernel
def accept(p, q, x, u, values):
    return p[x] > 0.0 and u * envelope(p, q) * q[x] < p[x]


@inner_kernel
def recover(p, q, x, values, weights):
    copy_row(p, weights)


def shares(p: Floats, q: Floats) -> tuple[Floats, Floats, Floats]:
    if ((p > 0.0) & (q == 0.0)).any():
        return np.zeros(p.size), p, p
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        ratio = np.where(p > 0.0, p / q, 0.0)
        return np.where(p > 0.0, ratio / ratio.max(), 0.0), p, p


RULE = positions.rule("non_iterative", (acceptance, recovered), (accept, recover), shares)
