"""K-SEQ: test K i.i.d. drafts one after the other, each against the same threshold p/(ρ·q).

At a node with children x_1 … x_K sampled independently from q: accept x_k with probability min(1,
p(x_k)/(ρ·q(x_k))). With b(ρ) = Σ min(q, p/ρ) one of them is accepted with probability 1 - (1 - b)^K, and if
none is, a token is emitted from

    p - min(q, p/ρ)·(1 - (1 - b)^K)/b,   normalised   (for b = 0 read (1 - (1-b)^K)/b as K).

Valid, and then lossless, for ρ ≥ ρ*, the solution of 1 - (1 - b)^K = ρ·b in [1, K]; below ρ* the residual
would be negative somewhere (`k_seq_small_rho`). We take ρ*, which accepts the most, and 10^-12 of it more, so
that rounding ends on the valid side: at least 1 - (1 - 1/K)^K of what the best rule accepts. The test does
not change from draft to draft, which is what makes it less than optimal.

In a tree K is the number of branches that survive at that node, all below tokens drafted alike, and ρ is
computed for it; siblings with the same token are separate trials (`k_seq_wrong_k` counts them once). K = 1 is
the standard rule.

Sun et al., "SpecTr", arXiv 2310.15141, Algorithm 2 (K-SEQ), Theorem 2.

Cost: a uniform for each node and one for the last token; O(V) times the passes of a search for ρ* at a node
from rows, O(K) for a fixed pair, with an alias table for each number of surviving branches."""

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from specsim.core._elementary import power
from specsim.core._kernels import inner_kernel, interpreted
from specsim.core._types import Floats, Row, StepLaw
from specsim.core.distributions import alias_table
from specsim.rules._common import nodewise
from specsim.rules._common.fixed_pairs import alias_draw
from specsim.rules._common.tokenwise import positive_part

#: How close the search comes to ρ*, as a share of [1, K], and how far above it ends, on the valid side.
CLOSE, MARGIN = 2.0**-50, 1e-12


def node_law(p: Row, q: Row, children: Sequence[int]) -> StepLaw:
    """The probability of accepting each child, and the residual."""
    return with_rho(p, q, children, len(children), least_rho(tuple(p), tuple(q), len(children)))


@lru_cache(maxsize=1024)
def least_rho(p: tuple[Any, ...], q: tuple[Any, ...], drafts: int) -> Fraction:
    """ρ* for `drafts` drafts, from above, as a Fraction: computed in float and taken as given."""
    rows = (np.array([float(weight) for weight in row]) for row in (p, q))
    with interpreted():
        return Fraction(float(rho_star(*rows, drafts)))


def with_rho(p: Row, q: Row, children: Sequence[int], drafts: int, rho: Any) -> StepLaw:
    """K-SEQ with any ρ, for `drafts` drafts; a negative residual is cut off at 0."""
    kept = [min(b, a / rho) for a, b in zip(p, q, strict=True)]
    mass, passed = sum(kept), [kept[x] / q[x] if q[x] else int(p[x] > 0) for x in children]
    factor = (1 - (1 - mass) ** drafts) / mass if mass else drafts
    return nodewise.in_turn(passed), positive_part(p, [factor * weight for weight in kept])


@inner_kernel
def overlap(p, q, rho):
    """b(ρ) = Σ min(q, p/ρ)."""
    total = 0.0
    for y in range(p.size):
        total += min(q[y], p[y] / rho)
    return total


@inner_kernel
def excess(p, q, drafts, rho):
    """1 - (1 - b)^K - ρ·b, which is not positive where K-SEQ is valid."""
    b = overlap(p, q, rho)
    return 1.0 - power(1.0 - b, drafts) - rho * b


@inner_kernel
def rho_star(p, q, drafts):
    """ρ* from the valid side, by Illinois' variant of false position, with a halving now and then."""
    low, high = 1.0, float(drafts)
    at_low, at_high = excess(p, q, drafts, low), excess(p, q, drafts, high)
    if at_low <= 0.0:
        return min(low * (1.0 + MARGIN), high)
    close, side, passes = CLOSE * (high - low), 0, 0
    while high - low > close:
        passes += 1
        middle = 0.5 * (low + high)
        if passes % 4 > 0 and at_high < 0.0:
            apart = min(0.5 * close, 0.25 * (high - low))
            guess = low + (high - low) * (at_low / (at_low - at_high))
            middle = min(max(guess, low + apart), high - apart)
        if not low < middle < high:
            break
        found = excess(p, q, drafts, middle)
        if found <= 0.0:
            high, at_high = middle, found
            at_low *= 0.5 if side < 0 else 1.0
            side = -1
        else:
            low, at_low = middle, found
            at_high *= 0.5 if side > 0 else 1.0
            side = 1
    return min(high * (1.0 + MARGIN), float(drafts))


@inner_kernel
def choose(p, q, children, u, values, weights):
    return sequential(p, q, children, u, rho_star(p, q, children.size), children.size, weights)


@inner_kernel
def sequential(p, q, children, u, rho, drafts, weights):
    """Test the children against p/(ρ·q); if none passes, fill weights[V] with the residual of `drafts`."""
    for k in range(children.size):
        x = children[k]
        if u[k] * rho * q[x] < p[x]:
            return k
    b = overlap(p, q, rho)
    factor = (1.0 - power(1.0 - b, drafts)) / b if b > 0.0 else float(drafts)
    for y in range(weights.size):
        weights[y] = max(p[y] - factor * min(q[y], p[y] / rho), 0.0)
    return -1


def table(p: Floats, q: Floats, drafts: int) -> Floats:
    """For K drafts row 2K has the accept probabilities, row 2K + 1 the alias table of the residual."""
    return tables_with(p, q, drafts, lambda count: rho_star(p, q, count))


def tables_with(p: Floats, q: Floats, drafts: int, rho_for: Any) -> Floats:
    rows = np.zeros((2 * drafts + 2, p.size))
    for count in range(1, drafts + 1):
        kept = np.minimum(q, p / rho_for(count))
        b = kept.sum()
        factor = (1.0 - power(1.0 - b, count)) / b if b > 0.0 else float(count)
        excess = np.maximum(p - factor * kept, 0.0)
        np.divide(kept, q, out=rows[2 * count], where=q > 0.0)
        rows[2 * count + 1] = alias_table(excess if excess.any() else p).view(np.float64)
    return rows


@inner_kernel
def pick(pair, table, children, u, last):
    return sequential_pick(table, children, u, last, children.size)


@inner_kernel
def sequential_pick(table, children, u, last, drafts):
    """Test the children one after the other with the rows of `table` for `drafts` drafts."""
    for k in range(children.size):
        if u[k] < table[2 * drafts, children[k]]:
            return k, children[k]
    return -1, alias_draw(table[2 * drafts + 1].view(np.int64), last)


RULE = nodewise.rule("k_seq", node_law, choose, nodewise.fixed_pair(pick, table))
