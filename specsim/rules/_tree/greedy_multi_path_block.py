"""Greedy multi-path block verification: choose one of K chains by an order, then verify it as a block.

After every prefix tokens are ordered by p/q, those with the same ratio by their number. Of the drafted paths
the greatest is chosen, token by token from the root, nodes with the same tokens merged. It begins with u if
no path is greater, and one begins with u; so with S the probability that a drafted path begins with u, L that
it is below u, and l(y) = Σ q(z) over the tokens z below y, its next token has the law

    r(y | u) = ((L + S·(l(y) + q(y)))^K - (L + S·l(y))^K) / ((L + S)^K - L^K).

The chosen path is verified by block verification (`_chain/block.py`) with r in place of q: b_i = min(1,
b_{i-1}·p/r), and so on. K = 1 is block verification.

Lossless for siblings sampled independently from q: the order is made of p and q alone, so the chosen path is
a chain whose every token was sampled from r, and for such a chain block verification is lossless. In another
tree each branch has its own power: after u, k children are drafted with probability ∝ c_k and r(y | u) = Σ_k
c_k·((l(y) + q(y))^k - l(y)^k)/Σ_k c_k, over k ≥ 1, with c_k the probability that no path is above u and k
nodes follow it; of K chains, c_k is C(K, k)·S^k·L^(K-k). Where the chosen path ends before others could
have, it is verified as far as it goes: b does not depend on whether it goes on.

Where all paths are of one length, a prefix u is accepted with probability β(u), where β(uy) = min(r(uy),
β(u)·p(y | u)). No lossless rule that accepts nothing but beginnings of the chosen path accepts more, whatever
else it looks at: uy is accepted with probability at most r(uy), the chance that the path begins so, and at
most β(u)·p(y | u), as after an accepted u the next token follows p. Another choice of the path may be better.
For two chains of two tokens out of two this one is often the best of all rules, found by linear programming;
but it takes the path away from p where q was near, and for p = q = (½, ½) it accepts less of two drafts than
block verification of one (both in the tests).

Thomas & Pal, "Greedy multi-path block verification for faster decoding in speculative sampling", arXiv
2602.16961: a greedy choice among K i.i.d. paths with block verification, and the optimality of block
verification among rules that see off-path probabilities. The order by p/q, the law r, trees that are not K
chains, and the proofs are derived here, and may differ from the paper's.

η_i is uniforms[i-1], the last uniform draws the last token. Cost: as many uniforms as the tree is deep, and
one; O(V·(K + log V)) from rows at each node that the block may be cut at; for a fixed pair O(K·log V) there
for each change of the sign of b·p - r along the order, of which there are few.
"""

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from specsim.core._kernels import Kernel, inner_kernel, kernel
from specsim.core._types import Floats, Ints, Row
from specsim.core.distributions import copy_row, cumulative_draw
from specsim.drafts import Draft, Tree
from specsim.rules._chain import block
from specsim.rules._common.base import FixedPair, Rule
from specsim.rules._common.fixed_pairs import (
    CODES,
    Groups,
    PairTables,
    alias_draw,
    build_tables,
    by_parent,
    draw_child,
)
from specsim.rules._common.sorting import stable_order


def uniforms(tree: Draft, vocab_size: int = 0) -> int:
    """One for each token of the longest path, one for the last token."""
    return tree.depth + 1


def law(
    parents: Sequence[int], tokens: Sequence[int], p: Sequence[Row], q: Sequence[Row]
) -> tuple[list[Any], list[Any]]:
    """stop[u]: the probability of accepting the path to u; follow[u] the pmf of the token after it."""
    nodes, chosen, choice, _ = greatest_path(parents, tokens, p, q)
    return verified_alone(nodes, chosen, p, choice)


def verified_alone(
    nodes: Sequence[int], chosen: Sequence[int], p: Sequence[Row], drafts: Sequence[Row]
) -> tuple[list[Any], list[Any]]:
    """The law of block verification of the `chosen` tokens at `nodes`, taken as samples of `drafts`."""
    stop: list[Any] = [0] * len(p)
    follow: list[Any] = [None] * len(p)
    if not chosen:
        stop[0], follow[0] = 1, list(p[0])
        return stop, follow
    chances, rows = block.law(range(len(chosen)), chosen, [p[node] for node in nodes], drafts)
    for node, chance, row in zip(nodes, chances, rows, strict=True):
        stop[node], follow[node] = chance, row
    return stop, follow


def greatest_path(
    parents: Sequence[int], tokens: Sequence[int], p: Sequence[Row], q: Sequence[Row]
) -> tuple[list[int], list[int], list[Row], list[Row]]:
    """The nodes of the chosen path, the root first, and its tokens; before each of them, r and q."""
    alike, nodes, chosen = [0], [0], []
    taken: list[tuple[Any, Any]] = []
    choice: list[Row] = []
    drafts: list[Row] = []
    while children := [
        j + 1 for j, parent in enumerate(parents) if parent in alike and q[parent][tokens[j]] > 0
    ]:
        node = parents[children[0] - 1]
        rank, below = ordered(p[node], q[node])
        whole = none_above(parents, taken, 1) - none_above(parents, taken, 0)
        choice.append(
            [
                (none_above(parents, taken, low + mass) - none_above(parents, taken, low)) / whole
                for low, mass in zip(below, q[node], strict=True)
            ]
        )
        drafts.append(q[node])
        x = max((tokens[child - 1] for child in children), key=lambda y: rank[y])
        alike = [child for child in children if tokens[child - 1] == x]
        nodes.append(alike[0])
        chosen.append(x)
        taken.append((below[x], q[node][x]))
    return nodes, chosen, choice, drafts


def ordered(p: Row, q: Row) -> tuple[list[int], list[Any]]:
    """The rank of each token, and l, the mass of q below it. Where q is 0 tokens are never drafted."""
    order = sorted(range(len(q)), key=lambda y: (p[y] / q[y] if q[y] else 0 * p[y], y))
    rank, below, mass = [0] * len(q), [0 * q[0]] * len(q), 0 * q[0]
    for place, y in enumerate(order):
        rank[y], below[y] = place, mass
        mass += q[y]
    return rank, below


def none_above(
    parents: Sequence[int], taken: Sequence[tuple[Any, Any]], t: Any, node: int = 0, depth: int = 0
) -> Any:
    """The probability that no path below `node` is greater than the chosen tokens and a next one among the
    lowest, of mass t. `taken` has l and q of each chosen token."""
    children = [j + 1 for j, parent in enumerate(parents) if parent == node]
    if depth == len(taken):
        return t ** len(children)
    low, mass = taken[depth]
    return prod(low + mass * none_above(parents, taken, t, child, depth + 1) for child in children)


# the kernels have c in place of powers of sums, whose differences would lose digits


@inner_kernel
def count_children(edges, low, mass, depth, degrees, counts, law):
    """Fill law with c_k, k ≥ 1, after the chosen path's first `depth` tokens, made to sum to 1; gives the
    largest k.

    `edges` has parents, children and the children's depths, from the leaves up; low and mass are l and q of
    the chosen tokens; counts[n+1, n+1] is used for the c_k of the subtrees, degrees[n+1] for their largest k.
    """
    above, below, depths = edges
    for v in range(degrees.size):
        degrees[v], counts[v, 0] = 0, 1.0
    for i in range(above.size):
        u, v, d = above[i], below[i], depths[i]
        own, more = degrees[u], degrees[v]
        if d == depth + 1:  # one more child after u
            counts[u, own], counts[u, own + 1] = 0.0, 1.0
            degrees[u] += 1
        elif d <= depth:  # the branch is below the path, or follows it with k children
            degrees[u] = own + more
            if own == 0:
                first = counts[u, 0]
                for k in range(more + 1):
                    counts[u, k] = first * counts[v, k] * mass[d - 1]
                counts[u, 0] += first * low[d - 1]
                continue
            for k in range(own + more, -1, -1):
                total = counts[u, k] * low[d - 1] if k <= own else 0.0
                for j in range(max(k - more, 0), min(k, own) + 1):
                    total += counts[u, j] * counts[v, k - j] * mass[d - 1]
                counts[u, k] = total
    most, total = degrees[0], 0.0
    for k in range(1, most + 1):
        total += counts[0, k]
    law[0] = 0.0
    for k in range(1, most + 1):
        law[k] = counts[0, k] / total if total > 0.0 else 0.0
    if total == 0.0:  # only by underflow
        law[1] = 1.0
    return most


@inner_kernel
def chance(law, most, low, mass):
    """r of a token with l = low and q = mass: Σ c_k·((low + mass)^k - low^k), k up to `most`."""
    slope, power, total = 1.0, 1.0, 0.0
    for k in range(1, most + 1):
        total += law[k] * slope
        power *= low
        slope = slope * (low + mass) + power
    return mass * total


@inner_kernel
def excess(law, most, order, p, q, b, weights):
    """Fill weights[V] with (b·p - r)₊, and give their sum."""
    low, mass = 0.0, 0.0
    for place in range(order.size):
        y = order[place]
        weights[y] = max(b * p[y] - chance(law, most, low, q[y]), 0.0)
        mass += weights[y]
        low += q[y]
    return mass


@inner_kernel
def fill_edges(parents, edges):
    """Fill the three arrays of `edges` [n], as `count_children` takes them."""
    above, below, depths = edges
    size = parents.size
    for v in range(1, size + 1):
        u = parents[v - 1]
        above[size - v], below[size - v] = u, v
        depths[size - v] = depths[size - u] + 1 if u > 0 else 1


@inner_kernel
def ratios(p, q, ratio):
    """Fill ratio[V] with p/q, 0 where q is."""
    for y in range(p.size):
        ratio[y] = p[y] / q[y] if q[y] > 0.0 else 0.0


@inner_kernel
def next_scale(b, p, r):
    """min(1, b·p/r). A drafted token has r > 0, but for underflow."""
    if r > 0.0:
        return min(1.0, b * p / r)
    return 1.0 if b * p > 0.0 else 0.0


def rows(count: Kernel) -> Kernel:
    """The row kernel; count(…), as `count_children`, gives the law of the number of children."""

    def verify_rows(parents, draft_tokens, p, q, uniforms, values, tokens, accepted):
        size, deepest, vocab_size = draft_tokens.shape[1], tokens.shape[0] - 1, p.shape[2]
        edges = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.int64)
        depths, alike = edges[2], np.empty(size + 1, np.bool_)
        degrees, counts = np.empty(size + 1, np.int64), np.empty((size + 1, size + 1))
        # along the chosen path: c_k with the largest k, the first node, the one whose row of q is read, the
        # token, its l and q
        laws, most = np.empty((deepest, size + 1)), np.empty(deepest, np.int64)
        node, above = np.empty(deepest + 1, np.int64), np.empty(deepest, np.int64)
        chosen = np.empty(deepest, np.int64)
        low, mass, b = np.empty(deepest), np.empty(deepest), np.empty(deepest + 1)
        ratio, weights = np.empty(vocab_size), np.empty(vocab_size)
        for s in range(draft_tokens.shape[0]):
            fill_edges(parents[s], edges)
            alike[:] = False
            alike[0] = True
            node[0], b[0], length = 0, 1.0, 0
            while length < deepest:
                x = -1
                for j in range(size):
                    u, y = parents[s, j], draft_tokens[s, j]
                    if depths[size - 1 - j] == length + 1 and alike[u] and q[s, u, y] > 0.0:
                        if x < 0:
                            above[length] = u
                            ratios(p[s, u], q[s, u], ratio)
                        if x < 0 or ratio[y] > ratio[x] or (ratio[y] == ratio[x] and y > x):
                            x, node[length + 1] = y, j + 1
                if x < 0:
                    break
                for j in range(size):
                    u = parents[s, j]
                    follows = depths[size - 1 - j] == length + 1 and alike[u]
                    alike[j + 1] |= follows and draft_tokens[s, j] == x
                draft = q[s, above[length]]
                low[length] = 0.0
                for y in range(vocab_size):
                    if ratio[y] < ratio[x] or (ratio[y] == ratio[x] and y < x):
                        low[length] += draft[y]
                mass[length] = draft[x]
                most[length] = count(edges, low, mass, length, degrees, counts, laws[length])
                r = chance(laws[length], most[length], low[length], mass[length])
                b[length + 1] = next_scale(b[length], p[s, node[length], x], r)
                chosen[length] = x
                length += 1
            n, left = length, 0.0
            if length > 0 and not uniforms[length - 1, s] < b[length]:
                for n in range(length - 1, -1, -1):
                    # h ≤ b, so that a larger η need not be compared
                    if n == 0 or uniforms[n - 1, s] < b[n]:
                        target, draft = p[s, node[n]], q[s, above[n]]
                        ratios(target, draft, ratio)
                        order = stable_order(ratio)
                        left = excess(laws[n], most[n], order, target, draft, b[n], weights)
                        if n == 0 or uniforms[n - 1, s] * (left + 1.0 - b[n]) < left or b[n] == 1.0:
                            break
            if left == 0.0:
                copy_row(p[s, node[n]], weights)
            for i in range(n):
                tokens[i, s] = chosen[i]
            tokens[n, s] = cumulative_draw(weights, uniforms[deepest, s])
            tokens[n + 1 :, s] = -1
            accepted[s] = n

    return kernel(verify_rows)


class Line(NamedTuple):
    """A fixed pair in order: its tokens, the place of each token, p/q, and sums of p and of q from 0 on."""

    tokens: Ints
    rank: Ints
    ratio: Floats
    p_sums: Floats
    q_sums: Floats


def line_of(p: Floats, q: Floats) -> Line:
    """Tokens that are never drafted, with q = 0, come last."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio = np.where(q > 0.0, p / q, np.inf)
    tokens = np.argsort(ratio, kind="stable")
    rank = np.empty_like(tokens)
    rank[tokens] = np.arange(q.size)
    sums = [np.concatenate([[0.0], np.cumsum(row[tokens])]) for row in (p, q)]
    return Line(tokens, rank, ratio[tokens], *sums)


@inner_kernel
def cumulative(law, most, t):
    """Σ c_k·t^k: the probability of a token among the lowest, of mass t."""
    total = 0.0
    for k in range(most, -1, -1):
        total = total * t + law[k]
    return total


@inner_kernel
def slope(law, most, t):
    """Its derivative, which rises with t."""
    total = 0.0
    for k in range(most, 0, -1):
        total = total * t + k * law[k]
    return total


@inner_kernel
def search(line, law, most, b, goal, ends, slopes):
    """(Σ (b·p - r)₊, -1); or, if it exceeds `goal`, (any number, the place of the token where it first does).

    Halves intervals until the sign of b·p - r is known in them: p/q rises along the order, and r/q is between
    the slopes at both ends. ends[65] has where those begun end, slopes[65] the slopes there."""
    if b == 0.0:
        return 0.0, -1
    total, first, depth = 0.0, 0, 0
    ends[0], low = line.tokens.size, law[1]
    slopes[0] = slope(law, most, line.q_sums[ends[0]])
    while depth >= 0:
        last = ends[depth]
        if b * line.ratio[last - 1] > low:  # else there is nothing in it
            if first < last - 1 and b * line.ratio[first] < slopes[depth]:
                depth += 1
                ends[depth] = (first + last) // 2
                slopes[depth] = slope(law, most, line.q_sums[ends[depth]])
                continue
            before, r = line.p_sums[first], cumulative(law, most, line.q_sums[first])
            excess = b * (line.p_sums[last] - before) - (cumulative(law, most, line.q_sums[last]) - r)
            if total + excess > goal:
                while first < last - 1:
                    middle = (first + last) // 2
                    r_sum = cumulative(law, most, line.q_sums[middle])
                    above = total + (b * (line.p_sums[middle] - before) - (r_sum - r)) > goal
                    first, last = (first, middle) if above else (middle, last)
                return total, first
            total += max(excess, 0.0)
        low, first = slopes[depth], last
        depth -= 1
    return total, -1


def different_edges(tree: Tree) -> tuple[Ints, ...]:
    """Edges as `count_children` takes them; of the subtrees of one shape at one depth one stands for all."""
    first: dict[tuple[int, ...], int] = {}
    same = [0] * (tree.size + 1)
    for u in range(tree.size, -1, -1):
        same[u] = first.setdefault((tree.depths[u], *(same[v] for v in tree.children(u))), u)
    kept = [v for v in range(tree.size, 0, -1) if same[tree.parents[v - 1]] == tree.parents[v - 1]]
    columns = [[tree.parents[v - 1] for v in kept], [same[v] for v in kept], [tree.depths[v] for v in kept]]
    return tuple(np.array(column) for column in columns)


def fixed_pair(count: Kernel) -> FixedPair:
    """The fixed-pair kernel. Only children of the chosen path are drawn."""

    def tables(p: Floats, q: Floats, tree: Tree) -> tuple[PairTables, Line, tuple[Ints, ...], Groups, int]:
        return build_tables(p, q), line_of(p, q), different_edges(tree), by_parent(tree), CODES[tree.sampling]

    def verify_fixed_pair(
        pair, line, edges, children, sampling, draft_uniforms, verify_uniforms, tokens, accepted
    ):
        nodes, starts = children
        size, deepest = nodes.size, tokens.shape[0] - 1
        drafted = np.empty(size, np.int64)  # in the order of `nodes`
        # those that have the tokens of the path, at each depth
        alike = np.empty((deepest + 1, size), np.int64)
        degrees, counts = np.empty(size + 1, np.int64), np.empty((size + 1, size + 1))
        laws, most = np.empty((deepest, size + 1)), np.empty(deepest, np.int64)
        low, mass, b = np.empty(deepest), np.empty(deepest), np.empty(deepest + 1)
        ends, slopes = np.empty(65, np.int64), np.empty(65)
        alike[0, 0], b[0] = 0, 1.0
        for s in range(accepted.size):
            length, same = 0, 1
            while length < deepest:
                x, found = -1, 0
                for i in range(same):
                    first, end = starts[alike[length, i]], starts[alike[length, i] + 1]
                    drawn = drafted[first:end]
                    for k in range(drawn.size):
                        node = nodes[first + k]
                        y = draw_child(pair, sampling, drawn, k, drawn.size, draft_uniforms[node - 1, s])
                        drawn[k] = y
                        if pair.q[y] > 0.0 and (x < 0 or line.rank[y] >= line.rank[x]):
                            if y != x:
                                x, found = y, 0
                            alike[length + 1, found] = node
                            found += 1
                if x < 0:
                    break
                low[length], mass[length] = line.q_sums[line.rank[x]], pair.q[x]
                most[length] = count(edges, low, mass, length, degrees, counts, laws[length])
                r = chance(laws[length], most[length], low[length], pair.q[x])
                b[length + 1] = next_scale(b[length], pair.p[x], r)
                tokens[length, s] = x
                length, same = length + 1, found
            n, left = length, 0.0
            if length > 0 and not verify_uniforms[length - 1, s] < b[length]:
                for n in range(length - 1, -1, -1):
                    if n == 0 or verify_uniforms[n - 1, s] < b[n]:
                        left, _ = search(line, laws[n], most[n], b[n], np.inf, ends, slopes)
                        if n == 0 or verify_uniforms[n - 1, s] * (left + 1.0 - b[n]) < left or b[n] == 1.0:
                            break
            u, place = verify_uniforms[deepest, s], -1
            if left > 0.0:
                place = search(line, laws[n], most[n], b[n], u * left, ends, slopes)[1]
            tokens[n, s] = line.tokens[place] if place >= 0 else alias_draw(pair.p_alias, u)
            tokens[n + 1 :, s] = -1
            accepted[s] = n

    return FixedPair(tables, kernel(verify_fixed_pair), uniforms)


RULE = Rule(
    name="greedy_multi_path_block",
    citation="Thomas & Pal 2026, arXiv 2602.16961; the order and its law are derived here",
    draft_sampling=("sampled",),
    law=law,
    rows=rows(count_children),
    fixed_pair=fixed_pair(count_children),
    uniforms=uniforms,
    survival=block.survival,
    on_trees=True,
)
