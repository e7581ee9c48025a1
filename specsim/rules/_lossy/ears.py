"""EARS: relax the accept test by the target's uncertainty, 1 - max p; recover from the residual (p - q)₊.

With t = β·(1 - max p), accept x with probability min(1, p(x)/q(x) + t), else emit a token from (p - q)₊,
normalised; the bonus comes from p. With R = Σ ((1 - t)·q - p)₊, the probability of a rejection, a token
follows

    π = min(q, p + t·q) + R·(p - q)₊ / Σ (p - q)₊

at drafted positions, or q where p = q. A target that is certain of a token, max p = 1, is verified by the
standard rule. Elsewhere a token with p = 0 passes with probability t, unlike under lenience. Here too every
rejection that is avoided is paid for by as much total variation, TV(π, p) = TV(p, q) - R, the least that any
rule can pay (Yin et al., arXiv 2411.00841).

Sun et al., "EARS: efficient adaptive rejection sampling", arXiv 2512.13194: the uncertainty, and a tolerance
in proportion to it by which the test is relaxed; vllm-ascend's `VLLM_EARS_TOLERANCE`, in [0, 1], is β. What
is sampled after a rejection is taken from the standard rule, and π and its total variation are derived here.

Cost: as the standard rule, and a pass over p at each position from rows."""

from typing import Any

import numpy as np

from specsim.core._kernels import inner_kernel
from specsim.core._types import Floats, Row
from specsim.core.distributions import capped_ratio
from specsim.rules._chain.standard import recover, recovered
from specsim.rules._common import positions


def acceptance(p: Row, q: Row, x: int, tolerance: Any) -> Any:
    return min(1, p[x] / q[x] + tolerance * (1 - max(p)))


def declared(p: Row, q: Row | None, position: int, tolerance: Any) -> list[Any]:
    if q is None:
        return list(p)
    relaxed = tolerance * (1 - max(p))
    rejected = sum(max((1 - relaxed) * b - a, 0) for a, b in zip(p, q, strict=True))
    distance = sum(max(a - b, 0) for a, b in zip(p, q, strict=True))
    share = rejected / distance if distance else 0
    return [min(b, a + relaxed * b) + share * max(a - b, 0) for a, b in zip(p, q, strict=True)]


@inner_kernel
def relaxation(p, tolerance):
    """t = β·(1 - max p)."""
    most = 0.0
    for y in range(p.size):
        most = max(most, p[y])
    return tolerance * max(1.0 - most, 0.0)


@inner_kernel
def accept(p, q, x, u, values):
    return u * q[x] < p[x] + relaxation(p, values[0]) * q[x]


def shares(p: Floats, q: Floats, tolerance: float) -> tuple[Floats, Floats, Floats]:
    relaxed = tolerance * max(1.0 - p.max(), 0.0)
    return np.minimum(capped_ratio(p, q) + relaxed, 1.0), np.maximum(p - q, 0.0), p


RULE = positions.rule("ears", (acceptance, recovered), (accept, recover), shares, declared=declared)
