"""Traversal verification: test a tree from its leaves up, so that a subtree is rejected only as a whole.

Every node u carries an acceptance probability w_u (1 at the root) and a target row M_u, at first p. Go to the
first leaf of the leftmost path, setting w_c = min(1, w_u·M_u(c)/q_u(c)) for each child c of u on the way.
Accept the leaf with probability w: emit the path to it and a token from its M. Otherwise delete it, and at
its parent u let A = (w_u·M_u - q_u)₊, S = Σ A, then

    w_u ← S/(S + 1 - w_u),   M_u ← A/S   (S = 0: w_u ← 0, M_u is not used),

and continue with the rest of the tree; u itself becomes a leaf when its last child is gone. The root is
always accepted. So a draft is accepted for its whole path, as in block verification, which this is on a
chain. Siblings with the same token stay separate, so that recursive rejection sometimes accepts more
(docs/proofs.md).

Lossless for siblings sampled independently from q and tried in the order in which they were drawn
(`traversal_without_replacement` is for those drawn so); sorted by probability they give TV up to .7. With the
update S/(1 - q(c)), as in a public implementation, the output is biased: `traversal_wrong_update`.

Weng et al., "Traversal verification for speculative tree decoding", arXiv 2505.12398, Algorithm 2,
reconstructed and proved here by enumeration.

Cost: a uniform for each node and one for the last token; O(n·V) from rows, O(n·log V) for a fixed pair, where
M_u is (b·p - d·q)₊ with two numbers."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from specsim.core._kernels import Kernel, Pointer, inner_kernel, kernel
from specsim.core._types import Floats, Rows, StepLaw
from specsim.core.distributions import copy_row, cumulative_draw
from specsim.models import Tree
from specsim.rules._chain.block import excess, survival
from specsim.rules._common.base import FixedPair, end_step, named
from specsim.rules._common.fixed_pairs import (
    CODES,
    build_tables,
    by_parent,
    draw_child,
    draw_residual,
    mass_without,
    residual_mass,
)
from specsim.rules._common.tokenwise import normalise


def traverse(
    parents: Sequence[int],
    tokens: Sequence[int],
    p: Rows,
    q: Rows,
    *,
    replaced: bool,
    update: Callable[[Any, Any, Any], Any] = lambda w, mass, draft: mass / (mass + 1 - w) if mass else 0 * w,
) -> StepLaw:
    """The law for siblings sampled independently (`replaced`), or without replacement.

    stop[u] is the probability of accepting node u, follow[u] the pmf of the token after it. update(w_u, S,
    draft) is w_u after a child was given up, which was drafted with the probability `draft`."""
    stop: list[Any] = [0] * len(p)
    follow: list[Any] = [None] * len(p)

    def visit(u: int, w: Any, reached: Any) -> Any:
        """Visit the subtree of u, reached with probability `reached`; returns that of rejecting it."""
        target, draft = list(p[u]), list(q[u]) if u in parents else []
        for c, x in ((j + 1, tokens[j]) for j, parent in enumerate(parents) if parent == u):
            if draft[x] == 0:  # q was exhausted
                continue
            reached = visit(c, min(1, w * target[x] / draft[x]), reached)
            residual = [max(w * a - b, 0 * a) for a, b in zip(target, draft, strict=True)]
            w = update(w, sum(residual), draft[x])
            target = normalise(residual) if any(residual) else target
            if not replaced:
                left = [weight * (y != x) for y, weight in enumerate(draft)]
                draft = normalise(left) if any(left) else left
        stop[u], follow[u] = reached * w, target
        return reached * (1 - w)

    visit(0, 1 + 0 * p[0][0], 1 + 0 * p[0][0])
    return stop, follow


@inner_kernel
def new_weight(w, mass, draft):
    return mass / (mass + 1.0 - w) if mass > 0.0 else 0.0


def rows(replaced: bool, update: Kernel = new_weight) -> Kernel:
    """The row kernel: uniforms[j] decides on node j + 1, uniforms[n] draws the last token."""

    def verify(parents, draft_tokens, p, q, uniforms, values, tokens, accepted):
        verify_rows(replaced, update, parents, draft_tokens, p, q, uniforms, values, tokens, accepted)

    return verify_rows.bound(verify, replaced, Pointer(update, "float64(float64, float64, float64)"))


@kernel
def verify_rows(replaced, update, parents, draft_tokens, p, q, uniforms, values, tokens, accepted):
    size, deepest = draft_tokens.shape[1], tokens.shape[0] - 1
    # for the nodes on the path to the current one: number, weight, the child last tried, target and draft
    node, child = np.empty(deepest + 1, np.int64), np.empty(deepest + 1, np.int64)
    w, weights = np.empty(deepest + 1), np.empty(p.shape[2])
    target, draft = np.empty((deepest + 1, p.shape[2])), np.empty((deepest + 1, p.shape[2]))
    for b in range(draft_tokens.shape[0]):
        d = 0
        node[0], w[0], child[0] = 0, 1.0, 0
        copy_row(p[b, 0], target[0])
        copy_row(q[b, 0], draft[0])
        while True:
            c = max(child[d], node[d]) + 1
            while c <= size and (parents[b, c - 1] != node[d] or draft[d, draft_tokens[b, c - 1]] == 0.0):
                c += 1
            if c <= size:  # go down to the next child
                x = draft_tokens[b, c - 1]
                child[d] = c
                chance = min(1.0, w[d] * target[d, x] / draft[d, x])
                d += 1
                node[d], w[d], child[d] = c, chance, 0
                copy_row(p[b, c], target[d])
                if c < q.shape[1]:
                    copy_row(q[b, c], draft[d])
            elif d == 0 or uniforms[node[d] - 1, b] < w[d]:
                break
            else:  # give it up
                d -= 1
                x = draft_tokens[b, child[d] - 1]
                tried = draft[d, x]
                mass = excess(w[d], target[d], draft[d], weights)
                if mass > 0.0:
                    for y in range(p.shape[2]):
                        target[d, y] = weights[y] / mass
                w[d] = update(w[d], mass, tried)
                if not replaced:
                    draft[d, x] = 0.0
                    left = draft[d].sum()
                    if left > 0.0:
                        for y in range(p.shape[2]):
                            draft[d, y] /= left
        for i in range(d):
            tokens[i, b] = draft_tokens[b, node[i + 1] - 1]
        end_step(tokens, accepted, b, d, cumulative_draw(target[d], uniforms[size, b]))


def fixed_pair(replaced: bool, update: Kernel = new_weight) -> FixedPair:
    """The fixed-pair kernel. Nodes that the verification does not reach are not drawn."""

    def tables(p: Floats, q: Floats, tree: Tree) -> tuple[Any, ...]:
        return build_tables(p, q), by_parent(tree), CODES[tree.draft_sampling]

    def verify_fixed_pair(pair, children, sampling, draft_uniforms, verify_uniforms, tokens, accepted):
        nodes, starts = children
        size, deepest = nodes.size, tokens.shape[0] - 1
        drafted = np.empty(size, np.int64)  # in the order of `nodes`
        # for the nodes on the path to the current one: number, children tried, weight; b and d of the target
        # (b·p - d·q)₊, normalised; the mass of q that is left
        node, tried = np.empty(deepest + 1, np.int64), np.empty(deepest + 1, np.int64)
        w, left = np.empty(deepest + 1), np.empty(deepest + 1)
        of_p, of_q = np.empty(deepest + 1), np.empty(deepest + 1)
        for s in range(accepted.size):
            d = 0
            node[0], w[0], tried[0], left[0], of_p[0], of_q[0] = 0, 1.0, 0, 1.0, 1.0, 0.0
            while True:
                first, k = starts[node[d]], tried[d]
                count = starts[node[d] + 1] - first
                if k < count:
                    c = nodes[first + k]
                    x = draw_child(pair, sampling, drafted, first, k, count, draft_uniforms[c - 1, s])
                    drafted[first + k] = x
                    tried[d] += 1
                    if pair.q[x] == 0.0:
                        continue
                    target = max(of_p[d] * pair.p[x] - of_q[d] * pair.q[x], 0.0)
                    chance = min(1.0, w[d] * target * left[d] / pair.q[x])
                    d += 1
                    node[d], w[d], tried[d], left[d], of_p[d], of_q[d] = c, chance, 0, 1.0, 1.0, 0.0
                elif d == 0 or verify_uniforms[node[d] - 1, s] < w[d]:
                    break
                else:
                    d -= 1
                    first, k = starts[node[d]], tried[d]
                    x = drafted[first + k - 1]
                    more, less = w[d] * of_p[d], w[d] * of_q[d] + 1.0 / left[d]
                    mass = residual_mass(pair, more, less)
                    w[d] = update(w[d], mass, pair.q[x] / left[d])
                    if mass > 0.0:
                        of_p[d], of_q[d] = more / mass, less / mass
                    if not replaced and first + k < starts[node[d] + 1]:
                        left[d] = mass_without(pair.q, pair.q_sums, drafted[first : first + k])
            for i in range(d):
                tokens[i, s] = drafted[starts[node[i]] + tried[i] - 1]
            end_step(tokens, accepted, s, d, draw_residual(pair, of_p[d], of_q[d], verify_uniforms[size, s]))

    return FixedPair(tables, kernel(verify_fixed_pair))


RULE = named("traversal", partial(traverse, replaced=True), rows(True), fixed_pair(True), survival=survival)
