"""Gumbel-max list sampling: K drafts, each by its own noise, and the target by the least of all of them.

With independent exponentials S_k(y), one for each draft and token and fresh at every node, draft k takes
x_k = argmin S_k(y)/q(y) and the target Y = argmin_y min_k S_k(y)/p(y). Y is emitted in any case; the drafts
that have it are followed. As min_k S_k(y) are independent exponentials of rate K, Y is a sample of p whatever
the draft does. K = 1 is `_chain/gumbel.py`. Here too the verifier samples the noise conditional on the
drafted tokens, so that the rule is lossless for children sampled independently from q, in any tree.
docs/proofs.md has ρ, T_k, Y_k, H and the law of Y given the drafts, and bounds how often one is accepted.

Rowan, Phan & Khisti, "List-level distribution coupling", arXiv 2506.05632, Algorithms 1 and 2. Drafts from
several models, which the paper treats too, are left out. From rows, e = -log(1 - u), and the first of the
drafts and the lowest of the tokens wins a tie.

Cost: from rows V uniforms and O(V) a node; for a fixed pair four uniforms and O(log V) a node: the share of
e in m + e, which decides whether x_k is Y_k, two for the sum m + e, which says when, and one to choose
another token."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise, product
from typing import Any, NamedTuple

import numpy as np

from specsim.core._elementary import log
from specsim.core._kernels import inner_kernel
from specsim.core._types import Floats, Ints, Row, StepLaw
from specsim.rules._chain.gumbel import race_table, target_token, uniforms
from specsim.rules._common import nodewise
from specsim.rules._common.fixed_pairs import build_tables, draw_sorted, guide, guided_count_up_to, index_of
from specsim.rules._common.nodewise import match

#: Σ c·exp(-h·t) as {h: c}.
Exponentials = Mapping[Any, Any]


def node_law(p: Row, q: Row, children: Sequence[int]) -> StepLaw:
    """The first child with a token is taken when the target has it; another token ends the step."""
    return nodewise.matching(children, target_law(p, q, children))


def target_law(p: Row, q: Row, children: Sequence[int]) -> list[Any]:
    """The law of Y given the drafted tokens."""
    law = [0 * a for a in p]
    for k, x in enumerate(children):
        others = [tail(p, q, z) for z in (*children[:k], *children[k + 1 :])]
        for y in range(len(p)):
            law[y] += integral([density(p, q, x, y), *others])
    return law


def rate(p: Row, q: Row, s: Any) -> Any:
    """H(s)."""
    return s + sum(max(a - s * b, 0) for a, b in zip(p, q, strict=True))


def tail(p: Row, q: Row, x: int, end: Any = None) -> Exponentials:
    """∫ t·exp(-t·H(s)) ds from ρ_x to `end`, or to ∞ if that is None."""
    start = p[x] / q[x]
    above = sorted({a / b for a, b in zip(p, q, strict=True) if b and a / b > start})
    points = [start, *(s for s in above if end is None or s <= end)]
    found: dict[Any, Any] = defaultdict(int)
    for low, high in pairwise(points):
        share = 1 / slope(p, q, low)
        found[rate(p, q, low)] += share
        found[rate(p, q, high)] -= share
    if end is None:  # from the largest ρ on the slope is 1
        found[rate(p, q, points[-1])] += 1 / slope(p, q, points[-1])
    return found


def slope(p: Row, q: Row, s: Any) -> Any:
    """The slope of H on the right of s."""
    return sum(b for a, b in zip(p, q, strict=True) if b and a / b <= s)


def density(p: Row, q: Row, x: int, y: int) -> Exponentials:
    """P(Y_k = y, T_k ∈ dt | x_k = x)."""
    start = p[x] / q[x]
    if y == x:
        return {rate(p, q, start): start}
    if q[y] and p[y] / q[y] <= start:
        return {}
    return {h: p[y] * share for h, share in tail(p, q, x, p[y] / q[y] if q[y] else None).items()}


def integral(factors: Sequence[Exponentials]) -> Any:
    """∫ of the product of sums of exponentials, from 0 to ∞."""
    total: Any = 0
    for terms in product(*(factor.items() for factor in factors)):
        share, power = math.prod(c for _, c in terms), sum(h for h, _ in terms)
        total += share / power
    return total


@inner_kernel
def choose(p, q, children, u, values, weights):
    size = p.size
    best, least = target_token(p, q, children[0], u[:size])
    for k in range(1, children.size):
        y, time = target_token(p, q, children[k], u[k * size : (k + 1) * size])
        if time < least:
            best, least = y, time
    return match(children, best, weights)


class Turns(NamedTuple):
    """For each token the share of e in m + e from which on it has had its turn.

    It is Λ/(1 + Λ), where Λ(r) = Σ (r·p - q)₊ at r = q/p. The shares stand by rising q/p, with a guide, and
    by token, with q/p by token; where p = 0 they are 1 and ∞."""

    rising: Floats
    guide: Ints
    share: Floats
    ratio: Floats


def table(p: Floats, q: Floats, drafts: int) -> Turns:
    pair = build_tables(p, q)
    turns = np.maximum.accumulate(1.0 - 1.0 / (1.0 + race_table(pair)))
    share, ratio = np.ones(p.size), np.full(p.size, np.inf)
    share[pair.order], ratio[pair.order] = turns, pair.ratio
    return Turns(turns, guide(turns), share, ratio)


@inner_kernel
def pick(pair, turns, children, u, last):
    best, least, count = 0, np.inf, 0
    for k in range(children.size):
        x, share = children[k], u[4 * k]  # e = share·g, and m the rest of g, the sum of two exponentials
        if turns.share[x] <= share:  # no other token had its turn before it
            begun, scale = 0, (1.0 - share) * turns.ratio[x]
        else:  # of the tokens that had theirs at `time`, by rising q/p, one in proportion to p
            begun = max(guided_count_up_to(turns.rising, turns.guide, share), 1)
            scale = (share + (1.0 - share) * pair.q_sorted[begun]) / pair.p_sorted[begun]
        time = 0.0
        if children.size > 1:
            time = -log((1.0 - u[4 * k + 1]) * (1.0 - u[4 * k + 2])) * scale
        if time < least:
            best, least, count = k, time, begun
    if count == 0:
        return index_of(children, children[best]), children[best]
    y = draw_sorted(pair, count, u[3])
    return index_of(children, y), y


RULE = nodewise.rule(
    "gumbel_list",
    node_law,
    choose,
    nodewise.fixed_pair(pick, table, lambda tree: 4 * tree.size + 1),
    uniforms=uniforms,
)
