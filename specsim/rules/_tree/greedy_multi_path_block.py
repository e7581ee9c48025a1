"""Greedy multi-path block verification: choose one of K chains by an order, then verify it as a block.

After every prefix tokens are ordered by p/q, those with the same ratio by their number. Of the drafted paths
the greatest is chosen, token by token from the root, nodes with the same tokens merged. Its next token after
u follows r(y | u), which docs/proofs.md derives from l(y) = Σ q(z) over the tokens z below y. It is verified
by block verification (`_chain/block.py`) with r in place of q: b_i = min(1, b_{i-1}·p/r), and so on. K = 1 is
block verification.

Lossless for siblings sampled independently from q: the order is made of p and q alone, so the chosen path is
a chain whose every token was sampled from r. No lossless rule that accepts nothing but beginnings of this
path accepts more.

Thomas & Pal, "Greedy multi-path block verification for faster decoding in speculative sampling", arXiv
2602.16961: a greedy choice among K i.i.d. paths with block verification, and the optimality of block
verification among rules that see off-path probabilities. The order by p/q, r, trees that are not K chains,
and the proofs are derived here, and may differ from the paper's.

η_i is uniforms[i-1], the last uniform draws the last token. Cost: as many uniforms as the tree is deep, and
one; O(V·(K + log V)) from rows at each node that the block may be cut at; for a fixed pair O(K·log V) there
for each of the few changes of the sign of b·p - r along the order."""

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from specsim.core._kernels import Kernel, inner_kernel, kernel
from specsim.core._types import Floats, Ints, Row, Rows, StepLaw
from specsim.core.distributions import copy_row, cumulative_draw
from specsim.models import Tree
from specsim.models._drafts.dynamic import Draft
from specsim.rules._chain import block
from specsim.rules._common.base import FixedPair, end_step, named, with_part
from specsim.rules._common.fixed_pairs import CODES, alias_draw, build_tables, by_parent, draw_trees
from specsim.rules._common.sorting import stable_order


def uniforms(tree: Draft, vocab_size: int = 0) -> int:
    """One for each token of the longest path, one for the last token."""
    return tree.depth + 1


def law(parents: Sequence[int], tokens: Sequence[int], p: Rows, q: Rows) -> StepLaw:
    """stop[u]: the probability of accepting the path to u; follow[u] the pmf of the token after it."""
    nodes, chosen, choice, _ = greatest_path(parents, tokens, p, q)
    return verified_alone(nodes, chosen, p, choice)


def verified_alone(nodes: Sequence[int], chosen: Sequence[int], p: Rows, drafts: Rows) -> StepLaw:
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
    parents: Sequence[int], tokens: Sequence[int], p: Rows, q: Rows
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
    """Fill law[:, s] with c_k, k ≥ 1, after the chosen path's first `depth` tokens in each step s, made to
    sum to 1; gives the largest k.

    `edges` has parents, children and the children's depths, from the leaves up; low[i, s] and mass[i, s] are
    l and q of the chosen tokens; counts[n+1, :, S] is used for the c_k of the subtrees, degrees[n+1] for
    their largest k."""
    above, below, depths = edges
    steps = law.shape[1]
    first = law[0]  # for sums, until the end
    for v in range(degrees.size):
        degrees[v] = 0
        counts[v, 0, :] = 1.0
    for i in range(above.size):
        u, v, d = above[i], below[i], depths[i]
        own, more = degrees[u], degrees[v]
        if d == depth + 1:  # one more child after u
            counts[u, own, :] = 0.0
            counts[u, own + 1, :] = 1.0
            degrees[u] += 1
        elif d <= depth:  # the branch is below the path, or follows it with k children
            degrees[u] = own + more
            below_path, on_path = low[d - 1], mass[d - 1]
            for k in range(own + more, -1, -1):
                found = counts[u, k]
                for s in range(steps):
                    first[s] = found[s] * below_path[s] if k <= own else 0.0
                for j in range(max(k - more, 0), min(k, own) + 1):
                    one, other = counts[u, j], counts[v, k - j]
                    for s in range(steps):
                        first[s] += one[s] * other[s] * on_path[s]
                for s in range(steps):
                    found[s] = first[s]
    most = degrees[0]
    first[:] = 0.0
    for k in range(1, most + 1):
        found = counts[0, k]
        for s in range(steps):
            first[s] += found[s]
    for k in range(1, most + 1):
        found, share = counts[0, k], law[k]
        only = 1.0 if k == 1 else 0.0  # where the sum is 0, only by underflow
        for s in range(steps):
            share[s] = found[s] / first[s] if first[s] > 0.0 else only
    first[:] = 0.0
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


@inner_kernel
def passes(eta, left, b):
    """Whether η < h, with h = left/(left + 1 - b)."""
    return eta * (left + 1.0 - b) < left or b == 1.0


#: The types of a `count`, see `rows`.
COUNT = (
    "int64(UniTuple(int64[::1], 3), float64[:, ::1], float64[:, ::1], int64, int64[::1], float64[:, :, ::1], "
    "float64[:, ::1])"
)


def rows(count: Kernel) -> Kernel:
    """The row kernel; count(…), as `count_children`, gives the law of the number of children."""
    return with_part(verify_rows, count, COUNT)


@kernel
def verify_rows(count, parents, draft_tokens, p, q, uniforms, values, tokens, accepted):
    size, deepest, vocab_size = draft_tokens.shape[1], tokens.shape[0] - 1, p.shape[2]
    edges = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.int64)
    depths, alike = edges[2], np.empty(size + 1, np.bool_)
    degrees, counts = np.empty(size + 1, np.int64), np.empty((size + 1, size + 1, 1))
    # along the chosen path: c_k with the largest k, the first node, the one whose row of q is read, the
    # token, its l and q
    laws, most = np.empty((deepest, size + 1, 1)), np.empty(deepest, np.int64)
    node, above = np.empty(deepest + 1, np.int64), np.empty(deepest, np.int64)
    chosen = np.empty(deepest, np.int64)
    low, mass, b = np.empty((deepest, 1)), np.empty((deepest, 1)), np.empty(deepest + 1)
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
                follows = depths[size - 1 - j] == length + 1 and alike[parents[s, j]]
                alike[j + 1] |= follows and draft_tokens[s, j] == x
            draft = q[s, above[length]]
            below = 0.0
            for y in range(vocab_size):
                if ratio[y] < ratio[x] or (ratio[y] == ratio[x] and y < x):
                    below += draft[y]
            low[length, 0], mass[length, 0] = below, draft[x]
            most[length] = count(edges, low, mass, length, degrees, counts, laws[length])
            r = chance(laws[length, :, 0], most[length], below, draft[x])
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
                    left = excess(laws[n, :, 0], most[n], order, target, draft, b[n], weights)
                    if n == 0 or passes(uniforms[n - 1, s], left, b[n]):
                        break
        if left == 0.0:
            copy_row(p[s, node[n]], weights)
        for i in range(n):
            tokens[i, s] = chosen[i]
        end_step(tokens, accepted, s, n, cumulative_draw(weights, uniforms[deepest, s]))


#: Steps whose laws are computed side by side: vectorised, and few enough for the cache.
BLOCK = 64


class Line(NamedTuple):
    """A fixed pair in order: its tokens, the place of each token, -1 where q is 0, p, q, p/q, sums of p and
    of q from 0 on; and how many numbers of children there are."""

    tokens: Ints
    rank: Ints
    p: Floats
    q: Floats
    ratio: Floats
    p_sums: Floats
    q_sums: Floats
    sizes: int


def line_of(p: Floats, q: Floats, most: int) -> Line:
    """Tokens that are never drafted, with q = 0, come last. `most` is the largest k."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio = np.where(q > 0.0, p / q, np.inf)
    tokens = np.argsort(ratio, kind="stable")
    rank = np.empty_like(tokens)
    rank[tokens] = np.where(q[tokens] > 0.0, np.arange(q.size), -1)
    p, q, ratio = p[tokens], q[tokens], ratio[tokens]
    p_sums, q_sums = (np.concatenate([[0.0], np.cumsum(row)]) for row in (p, q))
    return Line(tokens, rank, p, q, ratio, p_sums, q_sums, most + 1)


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
def find_excess(line, law, most, b, stretches, ends, slopes):
    """Σ (b·p - r)₊, and the number of stretches in which b·p > r, whose starts, ends and sums up to there
    fill `stretches`.

    Halves intervals until the sign of b·p - r is known in them: p/q rises along the order, and r/q is between
    the slopes at both ends. ends[65] has where those begun end, slopes[65] the slopes there."""
    starts, stops, sums = stretches
    if b == 0.0:
        return 0.0, 0
    total, first, depth, found, begun = 0.0, 0, 0, 0, False
    ends[0], low = line.tokens.size, law[1]
    slopes[0] = slope(law, most, line.q_sums[ends[0]])
    while depth >= 0:
        last = ends[depth]
        inside = b * line.ratio[last - 1] > low
        if inside and b * line.ratio[first] < slopes[depth]:  # neither nowhere nor everywhere
            if first < last - 1:
                depth += 1
                ends[depth] = (first + last) // 2
                slopes[depth] = slope(law, most, line.q_sums[ends[depth]])
                continue
            inside = excess_between(line, law, most, b, first, last) > 0.0
        if inside and not begun:
            starts[found] = first
        if begun and not inside:
            stops[found] = first
            found += 1
        low, first, begun = slopes[depth], last, inside
        depth -= 1
    if begun:
        stops[found] = first
        found += 1
    for k in range(found):
        total += max(excess_between(line, law, most, b, starts[k], stops[k]), 0.0)
        sums[k] = total
    return total, found


@inner_kernel
def excess_between(line, law, most, b, first, last):
    """Σ b·p - r over the tokens from place `first` to before `last`."""
    r = cumulative(law, most, line.q_sums[last]) - cumulative(law, most, line.q_sums[first])
    return b * (line.p_sums[last] - line.p_sums[first]) - r


@inner_kernel
def draw_excess(line, law, most, b, stretches, found, goal):
    """A token from (b·p - r)₊ by inverse CDF, where `goal` is below the sum; -1 if it is not."""
    starts, stops, sums = stretches
    k = 0
    while k < found and sums[k] <= goal:
        k += 1
    if k == found:
        return -1
    before = sums[k - 1] if k > 0 else 0.0
    start, first, last = starts[k], starts[k], stops[k]
    while first < last - 1:
        middle = (first + last) // 2
        above = before + excess_between(line, law, most, b, start, middle) > goal
        first, last = (first, middle) if above else (middle, last)
    return line.tokens[first]


def different_edges(tree: Tree) -> tuple[Ints, ...]:
    """Edges as `count_children` takes them, with one of the subtrees of one shape at one depth for all."""
    first: dict[tuple[int, ...], int] = {}
    same = [0] * (tree.size + 1)
    for u in range(tree.size, -1, -1):
        same[u] = first.setdefault((tree.depths[u], *(same[v] for v in tree.children(u))), u)
    kept = [v for v in range(tree.size, 0, -1) if same[tree.parents[v - 1]] == tree.parents[v - 1]]
    columns = [[tree.parents[v - 1] for v in kept], [same[v] for v in kept], [tree.depths[v] for v in kept]]
    return tuple(np.array(column) for column in columns)


def fixed_pair(count: Kernel) -> FixedPair:
    """The fixed-pair kernel. It goes depth by depth over a block of steps; then each step is cut."""

    def tables(p: Floats, q: Floats, tree: Tree) -> tuple[Any, ...]:
        line = line_of(p, q, max(tree.depths.count(depth) for depth in range(1, tree.depth + 1)))
        nodes = np.array(tree.parents), np.array(tree.depths[1:])
        drafted = by_parent(tree), CODES[tree.draft_sampling]
        return build_tables(p, q), line, different_edges(tree), nodes, *drafted

    def verify_fixed_pair(
        pair, line, edges, nodes, children, sampling, draft_uniforms, verify_uniforms, tokens, accepted
    ):
        parents, depths = nodes
        size, deepest, vocab_size = parents.size, tokens.shape[0] - 1, pair.p.size
        block = min(BLOCK, accepted.size)
        drafted = np.zeros((size, block), np.int32)
        # the places of all nodes' tokens; whether a node has the tokens of the path
        ranks, alike = np.empty((size, block), np.int64), np.ones((size + 1, block), np.bool_)
        degrees, counts = np.empty(size + 1, np.int64), np.empty((size + 1, line.sizes, block))
        # along the chosen path of each step: c_k with the largest k, the place of the token, its l and q
        laws, most = np.empty((deepest, line.sizes, block)), np.empty(deepest, np.int64)
        place, target = np.empty(block, np.int64), np.empty(block)
        low, mass = np.empty((deepest, block)), np.empty((deepest, block))
        lengths, b = np.empty(block, np.int64), np.ones((deepest + 1, block))
        ends, slopes = np.empty(65, np.int64), np.empty(65)
        stretches = np.empty(vocab_size, np.int64), np.empty(vocab_size, np.int64), np.empty(vocab_size)
        for begin in range(0, accepted.size, block):
            end = min(begin + block, accepted.size)
            draw_trees(pair, children, sampling, draft_uniforms[:, begin:end], drafted)
            for j in range(size):
                for s in range(block):
                    ranks[j, s] = line.rank[drafted[j, s]]
            lengths[:] = 0
            for i in range(deepest):
                place[:] = -1
                for j in range(size):
                    if depths[j] == i + 1:
                        above, own = alike[parents[j]], ranks[j]
                        for s in range(block):
                            place[s] = max(place[s], own[s] if above[s] else -1)
                for j in range(size):
                    if depths[j] == i + 1:
                        above, own, same = alike[parents[j]], ranks[j], alike[j + 1]
                        for s in range(block):
                            same[s] = above[s] & (own[s] == place[s]) & (own[s] >= 0)
                for s in range(block):
                    at = np.uint64(max(place[s], 0))
                    low[i, s], mass[i, s], target[s] = line.q_sums[at], line.q[at], line.p[at]
                    lengths[s] += np.int64(place[s] >= 0)
                most[i] = count(edges, low, mass, i, degrees, counts, laws[i])
                for s in range(end - begin):
                    r = chance(laws[i, :, s], most[i], low[i, s], mass[i, s])
                    b[i + 1, s] = next_scale(b[i, s], target[s], r)
                    tokens[i, begin + s] = line.tokens[max(place[s], 0)]
            for s in range(begin, end):
                n = length = lengths[s - begin]
                left, found, scale, law = 0.0, 0, b[n, s - begin], laws[0, :, 0]
                eta = verify_uniforms[:, s]
                if n > 0 and not eta[n - 1] < scale:
                    for n in range(length - 1, -1, -1):
                        scale, law = b[n, s - begin], laws[n, :, s - begin]
                        left, found = find_excess(line, law, most[n], scale, stretches, ends, slopes)
                        if n == 0 or passes(eta[n - 1], left, scale):
                            break
                u, token = eta[deepest], -1
                if left > 0.0:
                    token = draw_excess(line, law, most[n], scale, stretches, found, u * left)
                end_step(tokens, accepted, s, n, token if token >= 0 else alias_draw(pair.p_alias, u))

    return FixedPair(tables, kernel(verify_fixed_pair), uniforms)


RULE = named(
    "greedy_multi_path_block",
    law,
    rows(count_children),
    fixed_pair(count_children),
    uniforms=uniforms,
    survival=block.survival,
)
