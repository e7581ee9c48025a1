"""Fuzzy speculative decoding: follow the draft where the two rows are close, else the standard rule.

The standard rule against

    π = q  if JSD(p, q) < threshold,  else p,

as `_common/deferral.py` says, with JSD(p, q) = KL(p‖m)/2 + KL(q‖m)/2, m = (p + q)/2, in natural logarithms,
at most log 2.

Holsman, Huang & Dhingra, "Fuzzy speculative decoding", arXiv 2502.20704, which tries other divergences too.

Cost: two logarithms a token from rows, where a draft fails the standard test; for a fixed pair as the
standard rule."""

import math
from typing import Any

from specsim.core._elementary import log
from specsim.core._kernels import inner_kernel
from specsim.core._types import Row
from specsim.rules._common import deferral


def follows_target(p: Row, q: Row, threshold: Any) -> bool:
    divergence = 0.0
    for a, b in zip(map(float, p), map(float, q), strict=True):
        divergence += a * math.log(2 * a / (a + b)) / 2 if a > 0 else 0.0
        divergence += b * math.log(2 * b / (a + b)) / 2 if b > 0 else 0.0
    return not max(divergence, 0.0) < threshold


@inner_kernel
def defers(p, q, threshold):
    divergence = 0.0
    for y in range(p.size):
        if p[y] > 0.0:
            divergence += p[y] * log(2.0 * p[y] / (p[y] + q[y])) / 2.0
        if q[y] > 0.0:
            divergence += q[y] * log(2.0 * q[y] / (p[y] + q[y])) / 2.0
    return not max(divergence, 0.0) < threshold


RULE = deferral.rule("fuzzy", follows_target, defers)
