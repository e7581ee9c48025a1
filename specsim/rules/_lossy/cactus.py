"""Cactus: raise the target's probability of the drafted token by a budget, and verify against that.

For the drafted token n let

    h(n) = min(p(n) + √(2δ·p(n)·(1 - p(n))), 1),   h(i) = p(i)·(1 - h(n))/(1 - p(n)) for i ≠ n,

and h = p where p(n) = 1. Accept n with probability min(1, h(n)/q(n)), else emit a token from (h - q)₊,
normalised; the bonus comes from p. As every token n is tested against an h of its own, call it h_n, drafted
positions follow

    π(y) = min(q(y), h_y(y)) + Σ_n (q(n) - h_n(n))₊ · (h_n(y) - q(y))₊ / Σ_z (h_n(z) - q(z))₊.

The root is computed in floating point and then taken as given. δ = 0 is the standard rule. It is a budget for
KL(h‖p), and bounds no divergence of the output (docs/proofs.md).

Hao & Mou, "Cactus", arXiv 2604.04987, and its code, MANGA-UOFA/Cactus, where q is the target.

Cost: as the standard rule from rows; O(log V) for a fixed pair, as the recovered token depends on the
rejected one."""

import math
from fractions import Fraction
from typing import Any

import numpy as np

from specsim.core._kernels import inner_kernel
from specsim.core._types import Floats, Row
from specsim.core.distributions import capped_ratio
from specsim.rules._common import tokenwise
from specsim.rules._common.fixed_pairs import draw_residual
from specsim.rules._common.tokenwise import positive_part


def raised(chance: Any, delta: Any) -> Any:
    """h(n) where p(n) = `chance`; exact but for the root."""
    root = math.sqrt(2 * float(delta) * float(chance) * float(1 - chance))
    return min(chance + Fraction(root), 1)


def acceptance(p: Row, q: Row, x: int, delta: Any) -> Any:
    return min(1, raised(p[x], delta) / q[x])


def recovered(p: Row, q: Row, x: int, delta: Any) -> list[Any]:
    top = raised(p[x], delta)
    scale = (1 - top) / (1 - p[x]) if p[x] < 1 else 1
    h = [scale * weight for weight in p]
    h[x] = top
    return positive_part(h, q, otherwise=p)


def declared(p: Row, q: Row | None, position: int, delta: Any) -> list[Any]:
    if q is None:
        return list(p)
    h = [raised(chance, delta) for chance in p]
    law = [min(a, b) for a, b in zip(q, h, strict=True)]
    for n in (n for n in range(len(p)) if q[n] > h[n]):
        excess = [max((1 - h[n]) * a - (1 - p[n]) * b, 0) for a, b in zip(p, q, strict=True)]
        if any(excess):  # and nothing on n itself
            share = (q[n] - h[n]) / sum(excess)
            law = [mass + share * weight for mass, weight in zip(law, excess, strict=True)]
    return law


def chance(p: Floats, q: Floats, delta: float) -> Floats:
    """The probability of accepting a token, given its own p and q: h, which rises with p, concave below the
    cap, p < 1/(1 + 2δ), where its slope is (1 + 2δ)/2."""
    root = np.sqrt(np.asarray(2 * delta * p * (1 - p), dtype=np.float64))
    return capped_ratio(np.minimum(p + root, 1), q)


@inner_kernel
def lifted(chance, delta):
    """h(n) where p(n) = `chance`."""
    return min(chance + math.sqrt(2.0 * delta * chance * max(1.0 - chance, 0.0)), 1.0)


@inner_kernel
def shrunk(chance, delta):
    """What the other tokens are multiplied by, where p(n) = `chance`."""
    return (1.0 - lifted(chance, delta)) / (1.0 - chance) if chance < 1.0 else 1.0


@inner_kernel
def accept(p, q, x, u, values):
    return u * q[x] < lifted(p[x], values[0])


@inner_kernel
def recover(p, q, x, values, weights):
    scale = shrunk(p[x], values[0])
    for y in range(weights.size):  # nothing is left at x, because q(x) > h(x)
        weights[y] = max(scale * p[y] - q[y], 0.0)


def shares(p: Floats, q: Floats, delta: float) -> tuple[Floats, Floats]:
    """Accept with min(1, h/q); by the rejected token, what p is multiplied by."""
    h = np.minimum(p + np.sqrt(2.0 * delta * p * np.maximum(1.0 - p, 0.0)), 1.0)
    return capped_ratio(h, q), np.divide(1.0 - h, 1.0 - p, out=np.ones_like(p), where=p < 1.0)


@inner_kernel
def draw(pair, scales, x, tested, u):
    """From the residual of the rejected token."""
    return draw_residual(pair, scales[x], 1.0, u)


RULE = tokenwise.rule(
    "cactus",
    (acceptance, recovered),
    (accept, recover),
    tokenwise.fixed_pair_by_token(shares, draw),
    declared=declared,
    survival=tokenwise.survival(chance),
)
