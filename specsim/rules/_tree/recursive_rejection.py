"""Recursive rejection of i.i.d. siblings: test them in turn, each against the residual of those before it.

At a node with target row p and children x_1 … x_K sampled independently from q: start with R = p; accept x_k
with probability min(1, R(x_k)/q(x_k)), else replace R by (R - q)₊, normalised; after the last rejection emit
a token from R. An accepted child is the next node; a leaf is followed by a bonus from p.

Lossless for siblings sampled independently from q and tried in the order in which they were drawn, or in
random order: one round is the standard rule with target R. Sorted by probability they are no longer samples
of q, and the output is biased (TV up to .4; `sorted_siblings`). The probability that all K are
rejected is Π_k TV(R_k, q).

Miao et al., "SpecInfer", arXiv 2305.09781, Algorithm 2 (multi-step speculative sampling); for K parallel
drafts also Yang et al., "Multi-candidate speculative decoding", arXiv 2401.06706. SpecInfer tries siblings in
random order; for i.i.d. siblings the order of drawing is random already.

Cost: a uniform for each node and one for the last token; O(K·V) a node from rows, O(K + log V) for a fixed
pair, where R_k is (b·p - d·q)₊ with two numbers b, d that depend on k alone."""

from collections.abc import Sequence

import numpy as np

from specsim.core._kernels import inner_kernel
from specsim.core._types import Floats, Row, StepLaw
from specsim.core.distributions import copy_row
from specsim.rules._common import nodewise
from specsim.rules._common.fixed_pairs import build_tables, draw_residual, residual_mass
from specsim.rules._common.tokenwise import positive_part


def node_law(p: Row, q: Row, children: Sequence[int]) -> StepLaw:
    """The probability of accepting each child, and the last residual."""
    left, passed = list(p), []
    for x in children:
        passed.append(min(1, left[x] / q[x]) if q[x] else int(left[x] > 0))
        left = positive_part(left, q)
    return nodewise.in_turn(passed), left


@inner_kernel
def choose(p, q, children, u, values, weights):
    copy_row(p, weights)
    mass = 1.0
    for k in range(children.size):
        x = children[k]
        if u[k] * q[x] * mass < weights[x]:
            return k
        left = 0.0
        for y in range(weights.size):
            weights[y] = max(weights[y] - mass * q[y], 0.0)
            left += weights[y]
        mass = left
        if mass == 0.0:
            break
    return -1


def residuals(p: Floats, q: Floats, drafts: int) -> Floats:
    """Row k holds b and d of the residual after k rejections, normalised: [drafts + 1, 2]."""
    pair, rows = build_tables(p, q), [(1.0, 0.0)]
    for _ in range(drafts):
        b, d = rows[-1]
        mass = residual_mass(pair, b, d + 1.0)
        rows.append((b / mass, (d + 1.0) / mass) if mass > 0.0 else rows[-1])
    return np.array(rows)


@inner_kernel
def pick(pair, table, children, u, last):
    for k in range(children.size):
        x = children[k]
        if u[k] * pair.q[x] < table[k, 0] * pair.p[x] - table[k, 1] * pair.q[x]:
            return k, 0
    k = children.size
    return -1, draw_residual(pair, table[k, 0], table[k, 1], last)


RULE = nodewise.rule("recursive_rejection", node_law, choose, nodewise.fixed_pair(pick, residuals))
