"""Greedy match: accept drafts while each is the target's most probable token, and emit that token.

Accept x iff it is argmax p, else emit argmax p; the bonus is argmax p too. Among ties the lowest token is the
argmax.

Lossless for the target at temperature 0 only, that is for the declared distribution 1[x = argmax p]; it
changes a sampled target altogether. Any draft will do, sampled or greedy. At temperature 0 the standard rule,
sampler match and block verification all become this one.

The `GREEDY_MATCH` strategy of naive-speculate; exact match in Stern, Shazeer & Uszkoreit, arXiv 1811.03115,
section 3.

Cost: γ + 1 uniforms a step, all unused; O(V) a position from rows, O(1) for a fixed pair."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specsim.core._kernels import Kernel, kernel
from specsim.core._types import Floats, Row
from specsim.rules._common import positions
from specsim.rules._common.base import Rule


def argmax(p: Row) -> list[Any]:
    """All mass on the most probable token, the lowest among ties."""
    best = list(p).index(max(p))
    return [0 * weight + (x == best) for x, weight in enumerate(p)]


def acceptance(p: Row, q: Row, x: int) -> Any:
    return argmax(p)[x]


def recovered(p: Row, q: Row, x: int, **values: Any) -> list[Any]:
    return argmax(p)


def bonus(p: Row, q: None, **values: Any) -> list[Any]:
    return argmax(p)


def declared(p: Row, q: Row | None, position: int) -> list[Any]:
    largest = max(p)
    return [0 * weight + (weight == largest and largest not in p[:x]) for x, weight in enumerate(p)]


@kernel
def accept(p, q, x, u, values):
    return x == np.argmax(p)


@kernel
def follow(p, q, values, weights):
    weights[:] = 0.0
    weights[np.argmax(p)] = 1.0


@kernel
def recover(p, q, x, values, weights):
    follow(p, q, values, weights)


def declared_of(p: Row, q: Row | None, passing: Sequence[bool]) -> list[Any]:
    """π = q·1_S + (1 - q(S))·1_argmax, where S are the tokens that are `passing`; 1_argmax for the bonus."""
    law = [0 * a for a in p] if q is None else [b if s else 0 * b for b, s in zip(q, passing, strict=True)]
    law[list(p).index(max(p))] += 1 - sum(law)
    return law


def with_test(
    name: str,
    acceptance: Callable[..., Any],
    accept: Kernel,
    passing: Callable[..., NDArray[np.bool_]],
    **claims: Any,
) -> Rule:
    """The rule with another test, as law, as kernel, and as the tokens passing(p, **values)."""

    def shares(p: Floats, q: Floats, **values: float) -> tuple[Floats, Floats, Floats]:
        best = np.eye(1, p.size, int(p.argmax()))[0]
        return passing(p, **values).astype(np.float64), best, best

    law, kernels = (acceptance, recovered, bonus), (accept, recover, follow)
    return positions.rule(name, law, kernels, shares, reads_draft=False, **claims)


def passing(p: Floats) -> NDArray[np.bool_]:
    return np.arange(p.size) == p.argmax()


RULE = with_test("greedy_match", acceptance, accept, passing, declared=declared)
