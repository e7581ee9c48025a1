"""Lenience with the other residual in use: accept as `lenience` does, recover from (p - l·q)₊.

Accept x with probability min(1, p(x)/(l·q(x))), l in (0, 1], else emit a token from (p - l·q)₊, normalised;
the bonus comes from p. With α(l) = Σ min(p/l, q), so that Σ (p - l·q)₊ = 1 - l·α(l), a token follows

    π = min(p/l, q) + (1 - α(l))·(p - l·q)₊ / (1 - l·α(l)).

As many drafts pass as under `lenience`, and here too no token is more than 1/l times as probable as under p.
But TV(π, p) is never below the α(l) - α(1) of `lenience` (docs/proofs.md).

Leviathan, Kalman & Matias, arXiv 2211.17192, Appendix A.5, as `lenience`. Cost: as the standard rule."""

from typing import Any

import numpy as np

from specsim.core._kernels import inner_kernel
from specsim.core._types import Floats, Row
from specsim.rules._common import positions, tokenwise
from specsim.rules._common.tokenwise import positive_part
from specsim.rules._lossy.lenience import accept, acceptance, chance


def recovered(p: Row, q: Row, x: int, lenience: Any) -> list[Any]:
    return positive_part(p, [lenience * weight for weight in q])


def declared(p: Row, q: Row | None, position: int, lenience: Any) -> list[Any]:
    if q is None:
        return list(p)
    alpha = sum(min(a / lenience, b) for a, b in zip(p, q, strict=True))
    share = (1 - alpha) / (1 - lenience * alpha) if lenience * alpha < 1 else 0
    return [min(a / lenience, b) + share * max(a - lenience * b, 0) for a, b in zip(p, q, strict=True)]


@inner_kernel
def recover(p, q, x, values, weights):
    for y in range(weights.size):
        weights[y] = max(p[y] - values[0] * q[y], 0.0)


def shares(p: Floats, q: Floats, lenience: float) -> tuple[Floats, Floats, Floats]:
    return chance(p, q, lenience), np.maximum(p - lenience * q, 0.0), p


RULE = positions.rule(
    "scaled_lenience",
    (acceptance, recovered),
    (accept, recover),
    shares,
    declared=declared,
    survival=tokenwise.survival(chance),
)
