"""Speculative cascade, Chow's rule: the target takes over where the draft is not confident enough.

The standard rule against

    π = p  if max q < 1 - α,  else q:

accept x with probability min(1, π(x)/q(x)), else emit a token from (π - q)₊, normalised; the bonus comes from π as
well, so that q is needed after the last drafted token too. Every token follows π exactly. Whether that is p or q is
decided in floating point and then taken as given.

Narasimhan et al., "Faster cascades via speculative decoding", arXiv 2405.19261, the deferral rule named Chow.

Cost: a maximum over q a position more than the standard rule from rows; the same for a fixed pair.
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
    return p if float(max(q)) < 1 - float(alpha) else q


def acceptance(p: Sequence[Any], q: Sequence[Any], x: int, alpha: Any) -> Any:
    """The probability of accepting x: min(1, π/q)."""
    return min(1, pi(p, q, alpha)[x] / q[x])


def recovered(p: Sequence[Any], q: Sequence[Any], x: int, alpha: Any) -> list[Any]:
    """The residual (π - q)₊, whichever token was rejected."""
    return positive_part(pi(p, q, alpha), q)


def declared(p: Sequence[Any], q: Sequence[Any], position: int, alpha: Any) -> list[Any]:
    """What a token follows: p unless some token of q reaches 1 - α, at drafted positions and for the bonus."""
    confident = any(float(weight) >= 1 - float(alpha) for weight in q)
    return [b if confident else a for a, b in zip(p, q, strict=True)]


# --- rows ------------------------------------------------------------------------------------------------


@kernel
def defers(p, q, alpha):  # type: ignore[no-untyped-def]
    """Whether π is p."""
    return q.max() < 1.0 - alpha


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
    name="cascade_chow",
    citation="Narasimhan et al. 2025, arXiv 2405.19261, Chow",
    drawings=("sampled",),
    law=token_by_token.law("cascade_chow", acceptance, recovered, pi),
    declared=declared,
    declares="p or q, by max q",
    rows=token_by_token.rows(accept, recover, bonus),
    uniforms=token_by_token.uniforms,
    fixed_pair=token_by_token.fixed_pair(shares),
    parameters=(
        Parameter(
            "alpha", 0.25, 0.0, 1.0, "α; 0 is strict unless q is one-hot, 1 follows the draft everywhere"
        ),
    ),
    leaf_rows=True,
)
