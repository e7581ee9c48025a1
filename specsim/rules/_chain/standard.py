"""Standard speculative sampling: accept x with probability min(1, p(x)/q(x)), else sample the residual.

For a chain of drafted tokens x_1 … x_γ with target rows p_1 … p_{γ+1} and draft rows q_1 … q_γ: go through
them in order, accept x_i with probability min(1, p_i(x_i)/q_i(x_i)); at the first rejection emit a
*recovered* token from the residual (p_i - q_i)₊, normalised; if all are accepted emit a *bonus* token from
p_{γ+1}.

Lossless for a chain whose every token was sampled from the q handed over: a token comes out of position i
with probability min(p, q) by acceptance and (1 - β)·(p - q)₊/(1 - β) by recovery, which add up to p, where β
= Σ min(p, q) is the probability of acceptance.

Leviathan, Kalman & Matias, "Fast inference from transformers via speculative decoding", arXiv 2211.17192:
Algorithm 1, Theorem 3.5 (β), Appendix A.1 (losslessness). The same rule, with the letters swapped, is
Algorithm 2 of Chen et al., "Accelerating large language model decoding with speculative sampling",
arXiv 2302.01318. We depart from the paper where it writes r > p/q for a rejection, r uniform: we accept if
u·q < p, u in [0, 1), strictly, so that a token with p = 0 can never pass.

An all-zero residual cannot follow a rejection, except by rounding: a rejection needs q(x) > p(x), so rows of
equal sums leave p above q elsewhere. Where rounding does leave nothing, the recovered token comes from p.

Cost: γ + 1 uniforms a step; O(V) for the recovered token from rows, O(1) for a fixed pair."""

from collections.abc import Callable
from typing import Any

import numpy as np

from specsim.core._kernels import Kernel, inner_kernel
from specsim.core._types import Floats, Row
from specsim.core.distributions import capped_ratio
from specsim.rules._common import positions, tokenwise
from specsim.rules._common.base import Rule
from specsim.rules._common.tokenwise import positive_part


def acceptance(p: Row, q: Row, x: int) -> Any:
    """The probability of accepting x: min(1, p/q)."""
    return min(1, p[x] / q[x])


def recovered(p: Row, q: Row, x: int, **values: Any) -> list[Any]:
    """The residual, whichever token was rejected."""
    return positive_part(p, q)


@inner_kernel
def accept(p, q, x, u, values):
    return u * q[x] < p[x]


@inner_kernel
def recover(p, q, x, values, weights):
    for y in range(weights.size):
        weights[y] = max(p[y] - q[y], 0.0)


def shares(p: Floats, q: Floats) -> tuple[Floats, Floats, Floats]:
    """Accept with min(1, p/q); recover from the residual; the bonus from p."""
    return capped_ratio(p, q), np.maximum(p - q, 0.0), p


def with_test(
    name: str, acceptance: Callable[..., Any], accept: Kernel, chance: Callable[..., Floats], **claims: Any
) -> Rule:
    """The rule with another test, as law, as kernel, and as chance(p(x), q(x), **values) of arrays."""

    def shares(p: Floats, q: Floats, **values: float) -> tuple[Floats, Floats, Floats]:
        return chance(p, q, **values), np.maximum(p - q, 0.0), p

    law, kernels = (acceptance, recovered), (accept, recover)
    return positions.rule(name, law, kernels, shares, survival=tokenwise.survival(chance), **claims)


RULE = with_test("standard", acceptance, accept, capped_ratio)
