"""Speculative cascade, the optimal rule: the target takes over where that is worth the rejections it costs.

The standard rule against

    π = p  if max p - max q > α·TV(p, q),  else q:

accept x with probability min(1, π(x)/q(x)), else emit a token from (π - q)₊, normalised; the bonus comes from π as
well, so that q is needed after the last drafted token too. Every token follows π exactly. Whether that is p or q is
decided in floating point and then taken as given.

As |max p - max q| ≤ TV(p, q), only α in [-1, 1) weighs anything up: below -1, π = p; from 1 on, π = q.

Narasimhan et al., "Faster cascades via speculative decoding", arXiv 2405.19261, the deferral rule named OPT, with
1 - (largest probability) as the estimate of a model's loss at a position, and α the price of a rejection.

Cost: three passes over the rows a position more than the standard rule; the same for a fixed pair.
"""

from __future__ import annotations

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


def pi(p: Sequence[Any], q: Sequence[Any], alpha: Any) -> Sequence[Any]:
    """π, the law to be followed."""
    distance = sum(max(float(a) - float(b), 0.0) for a, b in zip(p, q, strict=True))
    return p if float(max(p)) - float(max(q)) > float(alpha) * distance else q


def acceptance(p: Sequence[Any], q: Sequence[Any], x: int, alpha: Any) -> Any:
    """The probability of accepting x: min(1, π/q)."""
    return min(1, pi(p, q, alpha)[x] / q[x])


def recovered(p: Sequence[Any], q: Sequence[Any], x: int, alpha: Any) -> list[Any]:
    """The residual (π - q)₊, whichever token was rejected."""
    return positive_part(pi(p, q, alpha), q)


def declared(p: Sequence[Any], q: Sequence[Any], position: int, alpha: Any) -> list[Any]:
    """What a token follows: p where its confidence is worth it, at drafted positions and for the bonus."""
    excess = [max(float(a) - float(b), 0.0) for a, b in zip(p, q, strict=True)]
    worth = float(max(p)) - float(max(q)) > float(alpha) * sum(excess)
    return [a if worth else b for a, b in zip(p, q, strict=True)]


# --- rows ------------------------------------------------------------------------------------------------


@kernel
def defers(p, q, alpha):  # type: ignore[no-untyped-def]
    """Whether π is p."""
    distance = 0.0
    for y in range(p.size):
        distance += max(p[y] - q[y], 0.0)
    return p.max() - q.max() > alpha * distance


@kernel
def accept(p, q, x, u, values):  # type: ignore[no-untyped-def]
    return u * q[x] < p[x] or not defers(p, q, values[0])


@kernel
def bonus(p, q, values, weights):  # type: ignore[no-untyped-def]
    if defers(p, q, values[0]):
        weights[:] = p
    else:
        weights[:] = q


# --- a fixed pair ----------------------------------------------------------------------------------------


def shares(p: Floats, q: Floats, alpha: float) -> tuple[Floats, Floats, Floats]:
    """The standard rule, or where π is q, acceptance of everything and a bonus from q."""
    return standard.shares(p, q) if defers(p, q, alpha) else (np.ones(q.size), p, q)


# --- registry --------------------------------------------------------------------------------------------

RULE = Rule(
    name="cascade_opt",
    citation="Narasimhan et al. 2025, arXiv 2405.19261, OPT",
    drawings=("sampled",),
    law=token_by_token.law("cascade_opt", acceptance, recovered, pi),
    declared=declared,
    declares="p or q, by max q - max p and TV(p, q)",
    rows=token_by_token.rows(accept, recover, bonus),
    uniforms=token_by_token.uniforms,
    fixed_pair=token_by_token.fixed_pair(shares),
    parameters=(
        Parameter(
            "alpha", 0.5, -10.0, 10.0, "α; below -1 it is strict, from 1 on it follows the draft everywhere"
        ),
    ),
    leaf_rows=True,
)
