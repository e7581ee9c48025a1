"""Fuzzy speculative decoding: where the two laws are near enough, follow the draft; elsewhere the standard rule.

The standard rule against

    π = q  if JSD(p, q) < threshold,  else p,

JSD(p, q) = KL(p‖m)/2 + KL(q‖m)/2, m = (p + q)/2, in natural logarithms, at most log 2: accept x with probability
min(1, π(x)/q(x)), else emit a token from (π - q)₊, normalised; the bonus comes from π as well, so that q is needed
after the last drafted token too. Every token follows π exactly. The divergence is computed in floating point, and how
it compares is then taken as given.

Holsman, Huang & Dhingra, "Fuzzy speculative decoding", arXiv 2502.20704, which tries other divergences too.

Cost: two logarithms a token from rows, where a draft fails the standard test; for a fixed pair as the standard rule.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from specsim.distributions import Floats
from specsim.jit import kernel
from specsim.rules import token_by_token
from specsim.rules.anatomy import Parameter, Rule
from specsim.rules.chain import standard
from specsim.rules.chain.standard import recover
from specsim.rules.token_by_token import positive_part

# --- law -------------------------------------------------------------------------------------------------


def pi(p: Sequence[Any], q: Sequence[Any], threshold: Any) -> Sequence[Any]:
    """π, the law to be followed."""
    divergence = 0.0
    for a, b in zip(map(float, p), map(float, q), strict=True):
        divergence += a * math.log(2 * a / (a + b)) / 2 if a > 0 else 0.0
        divergence += b * math.log(2 * b / (a + b)) / 2 if b > 0 else 0.0
    return q if max(divergence, 0.0) < threshold else p


def acceptance(p: Sequence[Any], q: Sequence[Any], x: int, threshold: Any) -> Any:
    """The probability of accepting x: min(1, π/q)."""
    return min(1, pi(p, q, threshold)[x] / q[x])


def recovered(p: Sequence[Any], q: Sequence[Any], x: int, threshold: Any) -> list[Any]:
    """The residual (π - q)₊, whichever token was rejected."""
    return positive_part(pi(p, q, threshold), q)


def declared(p: Sequence[Any], q: Sequence[Any], position: int, threshold: Any) -> list[Any]:
    """What a token follows: q where the entropy gained by mixing is small, else p; also for the bonus."""
    mean = [(a + b) / 2 for a, b in zip(p, q, strict=True)]
    gained = entropy(mean) - (entropy(p) + entropy(q)) / 2
    return [b if max(gained, 0.0) < threshold else a for a, b in zip(p, q, strict=True)]


def entropy(row: Sequence[Any]) -> float:
    return -sum(float(weight) * math.log(weight) for weight in row if weight > 0)


# --- rows ------------------------------------------------------------------------------------------------


@kernel
def near(p, q, threshold):  # type: ignore[no-untyped-def]
    """Whether π is q."""
    divergence = 0.0
    for y in range(p.size):
        if p[y] > 0.0:
            divergence += p[y] * math.log(2.0 * p[y] / (p[y] + q[y])) / 2.0
        if q[y] > 0.0:
            divergence += q[y] * math.log(2.0 * q[y] / (p[y] + q[y])) / 2.0
    return max(divergence, 0.0) < threshold


@kernel
def accept(p, q, x, u, values):  # type: ignore[no-untyped-def]
    return u * q[x] < p[x] or near(p, q, values[0])


@kernel
def bonus(p, q, values, weights):  # type: ignore[no-untyped-def]
    if near(p, q, values[0]):
        weights[:] = q
    else:
        weights[:] = p


# --- a fixed pair ----------------------------------------------------------------------------------------


def shares(p: Floats, q: Floats, threshold: float) -> tuple[Floats, Floats, Floats]:
    """The standard rule, or where π is q, acceptance of everything and a bonus from q."""
    return (np.ones(q.size), p, q) if near(p, q, threshold) else standard.shares(p, q)


# --- registry --------------------------------------------------------------------------------------------

RULE = Rule(
    name="fuzzy",
    citation="Holsman, Huang & Dhingra 2025, arXiv 2502.20704",
    drawings=("sampled",),
    law=token_by_token.law("fuzzy", acceptance, recovered, pi),
    declared=declared,
    declares="q where JSD(p, q) is small, else p",
    rows=token_by_token.rows(accept, recover, bonus),
    uniforms=token_by_token.uniforms,
    fixed_pair=token_by_token.fixed_pair(shares),
    parameters=(
        Parameter("threshold", 0.1, 0.0, 1.0, "0 is the standard rule; above log 2 everything is accepted"),
    ),
    leaf_rows=True,
)
