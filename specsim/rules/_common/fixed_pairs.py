"""Tables of a fixed pair of pmfs, the searches in them, and the sampling of drafts.

The residuals of exact rules on a fixed pair all have the form (b·p - d·q)₊ with two numbers b and d that vary
from step to step. With tokens sorted by q/p the tokens of positive weight are a prefix, and sums over it are
differences of two prefix sums, so mass and inverse CDF cost a binary search each: O(log V) for any b and d.
"""

from typing import Any, NamedTuple

import numpy as np

from specsim.core._kernels import Kernel, inner_kernel, kernel
from specsim.core._types import Floats, Ints
from specsim.core.distributions import alias_draws, alias_table
from specsim.models import Tree
from specsim.rules._common.base import FixedPair


class PairTables(NamedTuple):
    """The tables of p and q [V].

    Alias tables of both; sums by token, [V+1], with their guides; `ranked`, tokens by falling q; and by
    rising q/p, as far as p > 0, the tokens (`order`), their ratios, and sums of p and of q over them, from 0
    on. Of the ratios and the sums of p there are guides."""

    p: Floats
    q: Floats
    p_alias: Ints
    q_alias: Ints
    p_sums: Floats
    q_sums: Floats
    p_guide: Ints
    q_guide: Ints
    ranked: Ints
    order: Ints
    ratio: Floats
    ratio_guide: Ints
    p_sorted: Floats
    p_sorted_guide: Ints
    q_sorted: Floats


def build_tables(p: Floats, q: Floats) -> PairTables:
    """The tables of p and q, in O(V log V)."""
    possible = np.flatnonzero(p > 0.0)
    with np.errstate(over="ignore"):
        ratio = q[possible] / p[possible]
    rising = np.argsort(ratio, kind="stable")
    order = possible[rising]
    p_sums, q_sums, p_sorted = _sums(p), _sums(q), _sums(p[order])
    by_token = p, q, alias_table(p), alias_table(q), p_sums, q_sums, guide(p_sums), guide(q_sums)
    rose = ratio[rising]
    by_ratio = order, rose, below_stretches(rose, rose.size), p_sorted, guide(p_sorted), _sums(q[order])
    return PairTables(*by_token, np.argsort(-q, kind="stable"), *by_ratio)


def _sums(weights: Floats) -> Floats:
    return np.concatenate([[0.0], np.cumsum(weights)])


def guide(sums: Floats) -> Ints:
    """For V stretches of [0, 1) and the rest, how many of the sums [V+1] lie in the stretches below."""
    return below_stretches(sums, sums.size - 1)[:-1]


def below_stretches(numbers: Floats, parts: int) -> Ints:
    """For `parts` stretches of [0, 1) how many `numbers` lie below each, then those below 1, and all."""
    return np.searchsorted((np.minimum(numbers, 1.0) * parts).astype(np.int64), np.arange(parts + 2))


class Groups(NamedTuple):
    """The nodes of a tree in groups: group k is nodes[starts[k]:starts[k+1]], by rising number."""

    nodes: Ints
    starts: Ints


def by_parent(tree: Tree) -> Groups:
    """Group u has the children of node u."""
    return _groups(np.array(tree.parents), tree.size + 1)


def by_depth(tree: Tree) -> Groups:
    """Group d has the nodes of depth d + 1."""
    return _groups(np.array(tree.depths)[1:] - 1, tree.depth)


def _groups(keys: Ints, count: int) -> Groups:
    return Groups(np.argsort(keys, kind="stable") + 1, np.searchsorted(np.sort(keys), np.arange(count + 1)))


@inner_kernel
def alias_draw(table, u):
    """A token from an alias table, with u in [0, 1)."""
    scaled = u * table.size
    column = np.int64(scaled)
    word = table[column]
    coin = np.int64((scaled - column) * 2147483648.0)
    return word & 0xFFFFFFFF if coin >= word >> 32 else column


@inner_kernel
def count_below(rising, guide, goal):
    """How many of the sorted numbers `rising` ≥ 0 are < goal, from `below_stretches`; any for NaN."""
    last = guide.size - 2
    part = np.int64(goal * last) if goal < 1.0 else last
    first = guide[part]
    size = guide[part + 1] - first
    while size > 0:
        half = (size + 1) // 2
        first += half * np.int64(rising[first + half - 1] < goal)
        size -= half
    return first


@inner_kernel
def guided_count_up_to(sums, guide, goal):
    """How many of the `sums` are ≤ goal, from their guide on: few steps for a uniform goal, whatever V is."""
    last = guide.size - 1
    k = guide[min(np.int64(goal * last), last)]
    while k < sums.size and sums[k] <= goal:
        k += 1
    return k


#: Below this share of the total a difference of sums is inaccurate, and the mass is summed again, in O(V).
ACCURATE = 1e-6


@inner_kernel
def mass_without(weights, sums, excluded):
    """The mass of weights[V], with prefix sums[V+1], without the few tokens `excluded`."""
    total = sums[sums.size - 1]
    left = total
    x = next_above(excluded, -1)
    while x >= 0:
        left -= weights[x]
        x = next_above(excluded, x)
    if left <= ACCURATE * total:
        left = 0.0
        for y in range(weights.size):
            if admissible(weights, excluded, y):
                left += weights[y]
    return left


@inner_kernel
def draw_without(weights, sums, guide, excluded, u):
    """A token from the weights that `mass_without` sums, -1 if they are 0; O(k²) for k tokens."""
    left = mass_without(weights, sums, excluded)
    goal = u * left
    if left <= ACCURATE * sums[sums.size - 1]:
        token = -1
        for y in range(weights.size):
            if admissible(weights, excluded, y):
                token = y
                goal -= weights[y]
                if goal < 0.0:
                    break
        return token
    x = next_above(excluded, -1)
    while x >= 0:  # step over each excluded interval that lies below the goal
        if goal >= sums[x]:
            goal += weights[x]
        x = next_above(excluded, x)
    token = min(guided_count_up_to(sums, guide, goal) - 1, weights.size - 1)
    while not admissible(weights, excluded, token):  # where rounding led into an interval of no mass
        token = (token + 1) % weights.size
    return token


@inner_kernel
def admissible(weights, excluded, x):
    if not weights[x] > 0.0:
        return False
    return index_of(excluded, x) < 0


@inner_kernel
def scaled_prefix(pair, b, d):
    """Number of tokens, in order of q/p, with b·p > d·q."""
    return count_below(pair.ratio, pair.ratio_guide, b / d) if d > 0.0 else pair.ratio.size


@inner_kernel
def residual_mass(pair, b, d):
    """Σ (b·p - d·q)₊, for b, d ≥ 0."""
    k = scaled_prefix(pair, b, d)
    return max(b * pair.p_sorted[k] - d * pair.q_sorted[k], 0.0)


@inner_kernel
def draw_sorted(pair, k, u):
    """A token from p, of the first k tokens in order of q/p, by inverse CDF in that order."""
    goal = u * pair.p_sorted[k]
    return pair.order[min(guided_count_up_to(pair.p_sorted, pair.p_sorted_guide, goal), k) - 1]


@inner_kernel
def draw_residual(pair, b, d, u):
    """A token from (b·p - d·q)₊ by inverse CDF in order of q/p; from p where that has no mass."""
    if b == 1.0 and d == 0.0:
        return draw_sorted(pair, pair.order.size, u)
    k = scaled_prefix(pair, b, d)
    mass = b * pair.p_sorted[k] - d * pair.q_sorted[k]
    if not mass > 0.0:
        return alias_draw(pair.p_alias, u)
    goal = u * mass
    low, high = 1, k
    while low < high:
        middle = (low + high) // 2
        above = b * pair.p_sorted[middle] - d * pair.q_sorted[middle] > goal
        low, high = (low, middle) if above else (middle + 1, high)
    return pair.order[low - 1]


@inner_kernel
def next_above(tokens, x):
    """The least of the few `tokens`, an array or a tuple, that is greater than x; -1 if none is."""
    found = -1
    for k in range(len(tokens)):
        if tokens[k] > x and (found < 0 or tokens[k] < found):
            found = tokens[k]
    return found


@inner_kernel
def index_of(tokens, x):
    """The index of the first of `tokens`, an array or a tuple, that is x; -1 if none is."""
    for k in range(len(tokens)):
        if tokens[k] == x:
            return k
    return -1


#: Sampling methods as kernels take them.
CODES = {"sampled": 0, "without replacement": 1, "top": 2, "top and sample": 3}


@inner_kernel
def draw_child(pair, sampling, drafted, first, k, count, u):
    """Child k of `count`, after drafted[first : first + k], drawn from q by the method of code `sampling`."""
    if sampling == 2 or (sampling == 3 and k < count - 1):
        return pair.ranked[k]
    if sampling == 0 or k == 0:
        return alias_draw(pair.q_alias, u)
    drawn = drafted[first : first + k]
    token = draw_without(pair.q, pair.q_sums, pair.q_guide, drawn, u)
    if token >= 0:
        return token
    # q has no mass on other tokens: uniformly, by stepping over those already drawn
    token = np.int64(u * (pair.q.size - k))
    x = next_above(drawn, -1)
    while x >= 0:
        token += np.int64(token >= x)
        x = next_above(drawn, x)
    return token


@inner_kernel
def draw_tree(pair, children, sampling, u, siblings, drafted):
    """Fill drafted[n] with the tokens of all nodes, node j + 1 by u[j]; `children` as of `by_parent`."""
    for node in range(drafted.size):
        first, count = children.starts[node], children.starts[node + 1] - children.starts[node]
        for k in range(count):
            j = children.nodes[first + k] - 1
            siblings[k] = draw_child(pair, sampling, siblings, 0, k, count, u[j])
            drafted[j] = siblings[k]


@kernel
def draw_trees(pair, children, sampling, u, drafted):
    """Fill drafted[j, s] as `draw_tree` does in many steps, for those that look at most nodes."""
    if sampling == 0:
        for j in range(drafted.shape[0]):
            alias_draws(pair.q_alias, u[j], drafted[j])
    else:
        siblings, tokens = np.empty(len(drafted), np.int64), np.empty(len(drafted), np.int64)
        for s in range(u.shape[1]):
            draw_tree(pair, children, sampling, u[:, s], siblings, tokens)
            for j in range(tokens.size):
                drafted[j, s] = tokens[j]


def draw_draft(p: Floats, q: Floats, tree: Tree, u: Floats) -> list[int]:
    """The tokens that a fixed-pair kernel drafts with the uniforms u [n]."""
    siblings, tokens = np.empty(tree.size, np.int64), np.empty(tree.size, np.int64)
    draw_tree(build_tables(p, q), by_parent(tree), CODES[tree.draft_sampling], u, siblings, tokens)
    return [int(token) for token in tokens]


def fixed_pair_from_rows(rows: Kernel) -> FixedPair:
    """The fixed-pair kernel that drafts a step and hands it to the row kernel `rows`, at O(n·V) a step."""

    def tables(p: Floats, q: Floats, tree: Tree, **values: float) -> tuple[Any, ...]:
        given = [np.tile(row, (1, count, 1)) for row, count in ((p, tree.size + 1), (q, tree.num_rows))]
        parents, numbers = np.array([tree.parents]), np.array(list(values.values()), dtype=np.float64)
        return build_tables(p, q), by_parent(tree), parents, CODES[tree.draft_sampling], *given, numbers

    def verify_fixed_pair(
        pair, children, parents, sampling, p, q, values, draft_uniforms, verify_uniforms, tokens, accepted
    ):
        drafted, siblings = np.empty(parents.shape, np.int64), np.empty(parents.size, np.int64)
        # contiguous, as in other calls of `rows`: views of the arguments would compile it once more
        u, emitted = np.empty((verify_uniforms.shape[0], 1)), np.empty((tokens.shape[0], 1), np.int32)
        for s in range(accepted.size):
            draw_tree(pair, children, sampling, draft_uniforms[:, s], siblings, drafted[0])
            for i in range(u.size):
                u[i, 0] = verify_uniforms[i, s]
            rows(parents, drafted, p, q, u, values, emitted, accepted[s : s + 1])
            for i in range(emitted.size):
                tokens[i, s] = emitted[i, 0]

    return FixedPair(tables, kernel(verify_fixed_pair))
