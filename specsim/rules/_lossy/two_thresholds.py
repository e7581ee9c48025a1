"""Two thresholds: test siblings with one coin, by summed and by single probability, both made lenient.

At a node with target row p and children x_1 … x_K draw one coin u in [0, 1), and go through the children:
accept x_k, if p(x_k) > 0, iff

    u < (p(x_1) + … + p(x_k)) / threshold_acc   or   p(x_k) ≥ threshold_single.

If none passes emit a token from p without the children, normalised. An accepted child is the next node; a
leaf is followed by a bonus from p.

Thresholds of 1, the default in SGLang, are lossless for distinct siblings, however they were drawn: the coin
then is an inverse CDF over the children, and what it leaves is p without them. Siblings with the same token
would count twice, and are refused. Lower thresholds accept more. On a chain, where x is sampled from q and
passes with probability a(x) = 1 if p(x) ≥ threshold_single, else min(1, p(x)/threshold_acc), a token follows

    π(y) = q(y)·a(y) + p(y)·Σ_{x≠y} q(x)·(1 - a(x)) / (1 - p(x)).

This is what is declared, for a chain only; on a tree it depends on the siblings, see `node_law`.

SGLang, `tree_speculative_sampling_target_only`, called with `draft_probs` set to zero. Its test was once coin
≤ sum without p > 0, which lets a token with p = 0 pass where the coin is 0.

Cost: a uniform for each node, one used in each family, and one for the last token; O(K) a node and O(V) for
the last token from rows, O(K² + log V) for a fixed pair."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from specsim.core._kernels import inner_kernel
from specsim.core._types import Floats, Row, StepLaw
from specsim.core.distributions import capped_ratio, copy_row
from specsim.rules._common import nodewise, tokenwise
from specsim.rules._common.fixed_pairs import alias_draw, draw_without
from specsim.rules._common.tokenwise import normalise


def node_law(p: Row, q: Row, children: Sequence[int], threshold_single: Any, threshold_acc: Any) -> StepLaw:
    """The probability of accepting each child, an interval of one coin in [0, 1), and p without them."""
    summed, taken, accept = 0 * p[0], 0 * p[0], []
    for x in children:
        summed += p[x]
        end = 1 if float(p[x]) >= float(threshold_single) else max(taken, min(1, summed / threshold_acc))
        accept.append(end - taken)
        taken = end
    left = [weight * (y not in children) for y, weight in enumerate(p)]
    return accept, normalise(left) if any(left) else list(p)


def declared(p: Row, q: Row | None, position: int, threshold_single: Any, threshold_acc: Any) -> list[Any]:
    if q is None:
        return list(p)
    refused = [
        b * max(1 - a / threshold_acc, 0) * (float(a) < float(threshold_single))
        for a, b in zip(p, q, strict=True)
    ]
    spread = sum(lost / (1 - a) for lost, a in zip(refused, p, strict=True) if lost)
    return [
        b - lost + a * (spread - (lost / (1 - a) if lost else 0))
        for a, b, lost in zip(p, q, refused, strict=True)
    ]


def chance(p: Floats, q: Floats, threshold_single: float, threshold_acc: float) -> Floats:
    """The probability a(x) of accepting the only child of a node, given its own p, with which it rises."""
    return np.where(p >= threshold_single, 1, capped_ratio(p, threshold_acc))


@inner_kernel
def passes(chance, summed, u, threshold_single, threshold_acc):
    return chance > 0.0 and (u * threshold_acc < summed or chance >= threshold_single)


@inner_kernel
def choose(p, q, children, u, values, weights):
    summed = 0.0
    for k in range(children.size):
        summed += p[children[k]]
        if passes(p[children[k]], summed, u[0], values[0], values[1]):
            return k
    copy_row(p, weights)
    for x in children:
        weights[x] = 0.0
    return -1


@inner_kernel
def pick(pair, table, children, u, last):
    summed = 0.0
    for k in range(children.size):
        summed += pair.p[children[k]]
        if passes(pair.p[children[k]], summed, u[0], table[0, 0], table[0, 1]):
            return k, 0
    token = draw_without(pair.p, pair.p_sums, pair.p_guide, children, last)
    if token < 0:  # nothing left but rounding
        token = alias_draw(pair.p_alias, last)
    return -1, token


RULE = nodewise.rule(
    "two_thresholds",
    node_law,
    choose,
    nodewise.fixed_pair(pick),
    declared=declared,
    survival=tokenwise.survival(chance),
)
