"""Rules that follow the target or the draft at each position, as a deferral test decides: π = p or π = q.

They are the standard rule against π, so that every token follows π exactly: accept x with probability min(1,
π(x)/q(x)), else emit a token from (π - q)₊, normalised. The bonus comes from π as well, so that q is needed
after the last drafted token too. The test is evaluated in floating point, and its outcome is then taken as
given. This module builds a rule from its test."""

from collections.abc import Callable
from typing import Any

import numpy as np

from specsim.core._kernels import Kernel, kernel
from specsim.core._types import Floats, Row
from specsim.core.distributions import copy_row
from specsim.rules._chain import standard
from specsim.rules._common import positions, tokenwise
from specsim.rules._common.base import Rule


def rule(name: str, follows_target: Callable[..., bool], defers: Kernel, **claims: Any) -> Rule:
    """The rule of the test follows_target(p, q, **values), which is compiled as defers(p, q, value)."""

    def pi(p: Row, q: Row, **values: Any) -> Row:
        return p if follows_target(p, q, **values) else q

    def declared(p: Row, q: Row, position: int, **values: Any) -> list[Any]:
        return list(pi(p, q, **values))

    def acceptance(p: Row, q: Row, x: int, **values: Any) -> Any:
        return min(1, pi(p, q, **values)[x] / q[x])

    def recovered(p: Row, q: Row, x: int, **values: Any) -> list[Any]:
        return tokenwise.positive_part(pi(p, q, **values), q)

    def accept(p, q, x, u, values):
        return u * q[x] < p[x] or not defers(p, q, values[0])

    def bonus(p, q, values, weights):
        if defers(p, q, values[0]):
            copy_row(p, weights)
        else:
            copy_row(q, weights)

    def shares(p: Floats, q: Floats, **values: float) -> tuple[Floats, Floats, Floats]:
        (value,) = values.values()
        return standard.shares(p, q) if defers(p, q, value) else (np.ones(q.size), p, q)

    law, kernels = (acceptance, recovered, pi), (kernel(accept), standard.recover, kernel(bonus))
    return positions.rule(name, law, kernels, shares, declared=declared, leaf_rows=True, **claims)
