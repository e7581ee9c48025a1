"""Ensemble verification: the standard rule against a mixture of target and draft, π = w·p + (1 - w)·q.

Accept x with probability min(1, π(x)/q(x)), else emit a token from (π - q)₊ = w·(p - q)₊, normalised; the bonus
comes from p. Drafted positions follow π exactly. So TV(π, p) = (1 - w)·TV(p, q), and a draft is rejected with
probability w·TV(p, q): the two add up to TV(p, q), the least that any rule can pay (Yin et al., arXiv 2411.00841).

`assistant_ensemble_weight` = w in Hugging Face transformers. `judge` with overrule 1 - w accepts and recovers alike,
and so has the same law.

Cost: as the standard rule.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from specsim.core._kernels import kernel
from specsim.core._types import Floats, Row
from specsim.core.distributions import capped_ratio
from specsim.rules._chain.standard import recover
from specsim.rules._common import tokenwise
from specsim.rules._common.base import Parameter, Rule
from specsim.rules._common.tokenwise import positive_part


def acceptance(p: Row, q: Row, x: int, weight: Any) -> Any:
    """The probability of accepting x: min(1, π/q)."""
    return min(1, (weight * p[x] + (1 - weight) * q[x]) / q[x])


def recovered(p: Row, q: Row, x: int, weight: Any) -> list[Any]:
    """The residual (π - q)₊, which has the shape of (p - q)₊, whichever token was rejected."""
    return positive_part(p, q)


def declared(p: Row, q: Row | None, position: int, weight: Any) -> list[Any]:
    """What a token follows: π at drafted positions, p for the bonus."""
    return list(p) if q is None else [weight * a + (1 - weight) * b for a, b in zip(p, q, strict=True)]


def chance(p: Floats, q: Floats, weight: float) -> Floats:
    """The probability of accepting a token, given its own p and q: π/q = w·p/q + 1 - w, and π ≥ q where p ≥ q."""
    return weight * capped_ratio(p, q) + (1 - weight)


@kernel
def accept(p, q, x, u, values):
    return u * q[x] < values[0] * p[x] + (1.0 - values[0]) * q[x]


def shares(p: Floats, q: Floats, weight: float) -> tuple[Floats, Floats, Floats]:
    """Accept with min(1, π/q); recover from the residual; the bonus from p."""
    return chance(p, q, weight), np.maximum(p - q, 0.0), p


RULE = Rule(
    name="ensemble",
    citation="assistant_ensemble_weight in Hugging Face transformers (generation/utils.py)",
    draft_sampling=("sampled",),
    law=tokenwise.law("ensemble", acceptance, recovered),
    declared=declared,
    declares="w·p + (1-w)·q; bonus p",
    rows=tokenwise.rows(accept, recover),
    uniforms=tokenwise.uniforms,
    fixed_pair=tokenwise.fixed_pair(shares),
    survival=tokenwise.survival(chance),
    parameters=(
        Parameter(
            "weight", 0.5, 0.0, 1.0, "w, the target's share; 1 is the standard rule, 0 the draft alone"
        ),
    ),
)
