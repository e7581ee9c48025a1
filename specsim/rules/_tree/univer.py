"""Unified verification of a tree: every node takes what the optimal transport of its share of p can take.

A node u is visited with a weight w, the probability with which its subtree is to be accepted, 1 at the root.
Of its children, x was sampled from q', q without the children before it, which are taken as given: c_1, …,
c_m. With R = Σ (w·p(y) - q'(y))₊ over all other tokens y, the children's weights are

    w_x = min(1, w·p(x)/q'(x)),   w_{c_j} = w·p(c_j)/(R + 1 - w + w·(p(c_j) + … + p(c_m))).

Visit x first, then c_1 to c_m, each with all that is below it, and then u itself: accept it with probability
R/(R + 1 - w), and emit a token from (w·p - q')₊ without c_1 … c_m, normalised. A leaf is accepted with
probability w, and a token of p follows. The root is always accepted. In a chain it is block verification.

Lossless where the last child was sampled from q without those before it: the K - 1 most probable tokens and
a sample, or drawn without replacement (proof, and how much it accepts: docs/proofs.md).

Weng, Hu & Yairi, "UniVer: a unified perspective for multi-step and multi-draft speculative decoding", arXiv
2605.04543: the acceptance probability of the prefix scales the transport at each node. The plan for this way
of drawing, the order of the visits and the proof are derived here, and may differ from the paper's.

Cost: a uniform for each node and one for the last token; O(V) for each node with children from rows, O(K² +
log V) for a fixed pair."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from specsim.core._kernels import inner_kernel, kernel
from specsim.core._types import Floats, Ints, Rows, StepLaw
from specsim.core.distributions import copy_row, cumulative_draw, total_of
from specsim.models import Tree
from specsim.models._drafts.sampling import remaining_weights, rest
from specsim.rules._chain.block import survival
from specsim.rules._common.base import FixedPair, end_step, named
from specsim.rules._common.fixed_pairs import (
    ACCURATE,
    CODES,
    Groups,
    PairTables,
    alias_draw,
    build_tables,
    by_parent,
    draw_child,
    draw_residual,
    mass_without,
    residual_mass,
)
from specsim.rules._common.tokenwise import normalise
from specsim.rules._tree.greedy_multi_draft import LAST


def law(parents: Sequence[int], tokens: Sequence[int], p: Rows, q: Rows) -> StepLaw:
    """stop[u]: the probability of accepting node u; follow[u] the pmf of the token after it."""
    stop: list[Any] = [0] * len(p)
    follow: list[Any] = [None] * len(p)

    def visit(u: int, w: Any, reached: Any) -> Any:
        """Visit the subtree of u, reached with probability `reached`; returns that of rejecting it."""
        children = [j + 1 for j, parent in enumerate(parents) if parent == u]
        if not children:
            stop[u], follow[u] = reached * w, list(p[u])
            return reached * (1 - w)
        *given, x = (tokens[c - 1] for c in children)
        draft = normalise(remaining_weights(q[u], given))
        left = [
            max(w * a - b, 0) * (y not in given) for y, (a, b) in enumerate(zip(p[u], draft, strict=True))
        ]
        outside = sum(left) + 1 - w
        reached = visit(children[-1], min(1, w * p[u][x] / draft[x]), reached)
        for j, c in enumerate(given):
            below = outside + w * sum(p[u][y] for y in given[j:])
            reached = visit(children[j], w * p[u][c] / below if below else 0 * w, reached)
        own = sum(left) / outside if outside else 1
        stop[u], follow[u] = reached * own, normalise(left) if any(left) else list(p[u])
        return reached * (1 - own)

    visit(0, 1 + 0 * p[0][0], 1 + 0 * p[0][0])
    return stop, follow


@inner_kernel
def left_over(p, q, given, w, weights):
    """Fill weights[V] with (w·p - q')₊ without the tokens `given`, and give their sum R."""
    mass = rest(q, given, weights)
    for y in range(weights.size):
        weights[y] = max(w * p[y] - weights[y] / mass, 0.0)
    for y in given:
        weights[y] = 0.0
    return total_of(weights)


@inner_kernel
def chance_of_given(p, given, left, w):
    """The weight of the first of the children `given` that are still to be visited."""
    below = 0.0
    for y in given:
        below += p[y]
    below = left + 1.0 - w + w * below
    return w * p[given[0]] / below if below > 0.0 else 0.0


@inner_kernel
def chance_of_node(left, w, count):
    """The probability of accepting a node once its `count` children were rejected."""
    if count == 0:
        return w
    outside = left + 1.0 - w
    return left / outside if outside > 0.0 else 1.0


@kernel
def verify_rows(parents, draft_tokens, p, q, uniforms, values, tokens, accepted):
    """The row kernel: uniforms[j] decides on node j + 1, uniforms[n] draws the last token."""
    size, deepest = draft_tokens.shape[1], tokens.shape[0] - 1
    weights = np.empty(p.shape[2])
    # for the nodes on the path to the current one: number, weight, children visited, R
    node, visited = np.empty(deepest + 1, np.int64), np.empty(deepest + 1, np.int64)
    w, left = np.empty(deepest + 1), np.empty(deepest + 1)
    children, drafted = np.empty(size, np.int64), np.empty(size, np.int64)
    for s in range(draft_tokens.shape[0]):
        d = 0
        node[0], w[0], visited[0] = 0, 1.0, 0
        while True:
            u, count = node[d], 0
            for j in range(u, size):
                if parents[s, j] == u:
                    children[count], drafted[count] = j + 1, draft_tokens[s, j]
                    count += 1
            given = drafted[: max(count - 1, 0)]
            k = visited[d]
            if k == 1:
                left[d] = left_over(p[s, u], q[s, u], given, w[d], weights)
            if k < count:
                if k == 0:
                    c, x = children[count - 1], drafted[count - 1]
                    mass = rest(q[s, u], given, weights)
                    chance = min(1.0, w[d] * p[s, u, x] / (weights[x] / mass))
                else:
                    c, chance = children[k - 1], chance_of_given(p[s, u], given[k - 1 :], left[d], w[d])
                visited[d] += 1
                d += 1
                node[d], w[d], visited[d] = c, chance, 0
            elif d == 0 or uniforms[u - 1, s] < chance_of_node(left[d], w[d], count):
                break
            else:
                d -= 1
        if count == 0 or left_over(p[s, u], q[s, u], given, w[d], weights) == 0.0:
            copy_row(p[s, u], weights)
        for i in range(d):
            tokens[i, s] = draft_tokens[s, node[i + 1] - 1]
        end_step(tokens, accepted, s, d, cumulative_draw(weights, uniforms[size, s]))


def tables(p: Floats, q: Floats, tree: Tree) -> tuple[PairTables, Ints, Groups, int]:
    """The pair's tables, the place of each token in the order of q/p, and the tree."""
    pair = build_tables(p, q)
    place = np.full(p.size, pair.order.size)
    place[pair.order] = np.arange(pair.order.size)
    return pair, place, by_parent(tree), CODES[tree.draft_sampling]


@inner_kernel
def masses(pair, given, w, scale):
    """Σ (w·p - scale·q)₊ over all tokens, and over `given`."""
    inside = 0.0
    for y in given:
        inside += max(w * pair.p[y] - scale * pair.q[y], 0.0)
    return residual_mass(pair, w, scale), inside


@inner_kernel
def mass_left(pair, given, x, w, scale, weights):
    """R, where q' is scale·q without `given`, in O(K + log V), or O(V) where inaccurate, or q' is uniform."""
    if pair.q[x] > 0.0:
        mass, inside = masses(pair, given, w, scale)
        if mass - inside > ACCURATE * mass or mass == 0.0:
            return mass - inside if mass > 0.0 else 0.0
    return left_over(pair.p, pair.q, given, w, weights)


@inner_kernel
def draw_left(pair, place, given, x, w, scale, u, weights):
    """A token from (w·p - q')₊ without `given`; from p where that is 0. At the cost of `mass_left`."""
    if pair.q[x] > 0.0:
        mass, inside = masses(pair, given, w, scale)
        if mass - inside > ACCURATE * mass:
            goal, last = u * (mass - inside), -1
            for _ in range(given.size):  # step over them in the order of q/p
                at = place.size
                for y in given:
                    if last < place[y] < at:
                        at = place[y]
                last = at
                if at < pair.order.size:
                    more = w * pair.p[pair.order[at]] - scale * pair.q[pair.order[at]]
                    if more > 0.0 and goal >= w * pair.p_sorted[at] - scale * pair.q_sorted[at]:
                        goal += more
            return draw_residual(pair, w, scale, min(goal / mass, LAST))
    if left_over(pair.p, pair.q, given, w, weights) == 0.0:
        return alias_draw(pair.p_alias, u)
    return cumulative_draw(weights, u)


@kernel
def verify_fixed_pair(pair, place, children, sampling, draft_uniforms, verify_uniforms, tokens, accepted):
    """Nodes that the verification does not reach are not drawn."""
    nodes, starts = children
    size, deepest = nodes.size, tokens.shape[0] - 1
    weights = np.empty(pair.p.size)
    drafted = np.empty(size, np.int64)  # in the order of `nodes`
    # of the nodes on the path to the current one: number, index in `nodes`, children visited, weight, R, q'/q
    node, index = np.empty(deepest + 1, np.int64), np.empty(deepest + 1, np.int64)
    visited, w = np.empty(deepest + 1, np.int64), np.empty(deepest + 1)
    left, scale = np.empty(deepest + 1), np.empty(deepest + 1)
    for s in range(accepted.size):
        d = 0
        node[0], w[0], visited[0] = 0, 1.0, 0
        while True:
            first, k = starts[node[d]], visited[d]
            count = starts[node[d] + 1] - first
            if count > 0:
                if k == 0:
                    for i in range(first, first + count):
                        v = draft_uniforms[nodes[i] - 1, s]
                        drafted[i] = draw_child(pair, sampling, drafted, first, i - first, count, v)
                given, x = drafted[first : first + count - 1], drafted[first + count - 1]
                if k == 0:
                    mass = mass_without(pair.q, pair.q_sums, given)
                    scale[d] = 1.0 / mass if pair.q[x] > 0.0 else 0.0
                    draft = pair.q[x] / mass if pair.q[x] > 0.0 else 1.0 / (pair.q.size - given.size)
                    at, chance = count - 1, min(1.0, w[d] * pair.p[x] / draft)
                else:
                    if k == 1:
                        left[d] = mass_left(pair, given, x, w[d], scale[d], weights)
                    if k < count:
                        at, chance = k - 1, chance_of_given(pair.p, given[k - 1 :], left[d], w[d])
            if k < count:
                visited[d] += 1
                d += 1
                index[d] = first + at
                node[d], w[d], visited[d] = nodes[index[d]], chance, 0
            else:
                if d == 0 or verify_uniforms[node[d] - 1, s] < chance_of_node(left[d], w[d], count):
                    break
                d -= 1
        last = verify_uniforms[size, s]
        if count == 0:
            token = alias_draw(pair.p_alias, last)
        else:
            given, x = drafted[first : first + count - 1], drafted[first + count - 1]
            token = draw_left(pair, place, given, x, w[d], scale[d], last, weights)
        for i in range(d):
            tokens[i, s] = drafted[index[i + 1]]
        end_step(tokens, accepted, s, d, token)


RULE = named("univer", law, verify_rows, FixedPair(tables, verify_fixed_pair), survival=survival)
