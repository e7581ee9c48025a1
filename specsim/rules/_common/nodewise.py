"""Rules that go down a tree node by node: one of the children is accepted, or none and a token follows.

Nodes with the same tokens are merged: siblings with the same token are tested separately, and after any of
them passes, the children of all of them are next. (Those children were sampled independently of one another,
so they may be taken as children of a single node.)

Such a rule is a law at one node, from which this module builds the law of a whole step, the row kernel, and
the fixed-pair kernel. After a path that was accepted whole, the bonus comes from p."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from specsim.core._kernels import Kernel, inner_kernel, kernel
from specsim.core._types import Floats, Row, Rows, StepLaw
from specsim.core.distributions import copy_row, cumulative_draw, is_zero
from specsim.models import Tree
from specsim.rules._common.base import FixedPair, Rule, end_step, named, uniform_per_node, with_part
from specsim.rules._common.fixed_pairs import CODES, alias_draw, build_tables, by_depth, draw_child, index_of
from specsim.rules._common.tokenwise import normalise


def rule(
    name: str, node_law: Callable[..., tuple[list[Any], Row]], choose: Kernel, pair: FixedPair, **claims: Any
) -> Rule:
    """The rule for trees with the law at a node `node_law`, see `law`, the kernel `choose`, see `rows`, and
    the fixed-pair kernel of `pair`; `claims` are other parts of a `Rule`, as its citation without `words`."""
    return named(name, law(node_law), rows(choose), pair, on_trees=True, **claims)


def law(node_law: Callable[..., tuple[list[Any], Row]]) -> Callable[..., StepLaw]:
    """Build the law of a step from the law at one node.

    node_law(p, q, children, **values) gives the probability of accepting each child, and the pmf of the token
    that follows if none is. `children` are the tokens drafted there, at least one, in the order sampled."""

    def step_law(parents: Sequence[int], tokens: Sequence[int], p: Rows, q: Rows, **values: float) -> StepLaw:
        stop: list[Any] = [0] * (len(tokens) + 1)
        follow: list[Any] = [None] * (len(tokens) + 1)

        def go_on(alike: list[int], reached: Any) -> None:
            children = [j + 1 for j, parent in enumerate(parents) if parent in alike]
            if not children:
                stop[alike[0]], follow[alike[0]] = reached, list(p[alike[0]])
                return
            node = parents[children[0] - 1]
            drafted = [tokens[child - 1] for child in children]
            accept, recovered = node_law(p[node], q[node], drafted, **values)
            stop[node], follow[node] = reached * (1 - sum(accept)), list(recovered)
            for x in dict.fromkeys(drafted):
                same = [child for child, token in zip(children, drafted, strict=True) if token == x]
                passed = sum(chance for chance, token in zip(accept, drafted, strict=True) if token == x)
                if passed:
                    go_on(same, reached * passed)

        go_on([0], 1)
        return stop, follow

    return step_law


def in_turn(chances: Sequence[Any]) -> list[Any]:
    """The probability of accepting each child, from those of passing, each given that none before it did."""
    reached, accept = 1, []
    for passed in chances:
        accept.append(reached * passed)
        reached = reached * (1 - passed)
    return accept


def matching(children: Sequence[int], law: Row) -> tuple[list[Any], list[Any]]:
    """The law at a node of one draw from `law`: the first child with its token is accepted, if any has it."""
    accept = [law[x] * (x not in children[:k]) for k, x in enumerate(children)]
    others = [weight * (x not in children) for x, weight in enumerate(law)]
    return accept, normalise(others) if any(others) else list(law)


@inner_kernel
def match(children, y, weights):
    """The first child with the drawn token y; where none has it -1, and all weight on y."""
    k = index_of(children, y)
    if k < 0:
        weights[:] = 0.0
        weights[y] = 1.0
    return k


#: The types of a `choose`.
CHOOSE = "int64(float64[::1], float64[::1], int64[::1], float64[::1], float64[::1], float64[::1])"


def rows(choose: Kernel) -> Kernel:
    """Build the row kernel: uniforms[j] belongs to node j + 1, uniforms[n] draws the last token.

    choose(p, q, children, u, values, weights) gives the index of the accepted child by its uniforms u[k], or
    -1 after filling weights[V] with the law of the token that follows, not normalised. Of a rule with w·n + 1
    uniforms, the w of a node follow one another, in `uniforms` and in u."""
    return with_part(verify_rows, choose, CHOOSE)


@kernel
def verify_rows(choose, parents, draft_tokens, p, q, uniforms, values, tokens, accepted):
    size = draft_tokens.shape[1]
    weights = np.empty(p.shape[2])
    level = np.empty(size + 1, np.int64)  # depth + 1 of the nodes that carry the emitted tokens
    children, nodes = np.empty(size, np.int64), np.empty(size, np.int64)
    width = (uniforms.shape[0] - 1) // size
    u = np.empty(size * width)
    for b in range(draft_tokens.shape[0]):
        level[:] = 0
        level[0] = 1
        node, depth = 0, 0
        while True:
            count = 0
            for j in range(node, size):
                if level[parents[b, j]] == depth + 1:
                    nodes[count], children[count] = j + 1, draft_tokens[b, j]
                    for i in range(width):
                        u[count * width + i] = uniforms[j * width + i, b]
                    count += 1
            if count == 0:
                copy_row(p[b, node], weights)
                break
            node = parents[b, nodes[0] - 1]
            coins = u[: count * width]
            chosen = choose(p[b, node], q[b, node], children[:count], coins, values, weights)
            if chosen < 0:
                if is_zero(weights):  # only by rounding
                    copy_row(p[b, node], weights)
                break
            tokens[depth, b] = children[chosen]
            depth += 1
            node = nodes[chosen]
            for k in range(count):
                if children[k] == children[chosen]:
                    level[nodes[k]] = depth + 1
                    node = min(node, nodes[k])
        end_step(tokens, accepted, b, depth, cumulative_draw(weights, uniforms[size * width, b]))


def no_table(p: Floats, q: Floats, drafts: int, **values: float) -> Floats:
    """The table of a rule that needs nothing but its parameters."""
    return np.array([list(values.values())], dtype=np.float64)


def fixed_pair(
    pick: Kernel, table: Callable[..., Any] = no_table, uniforms: Callable[[Tree], int] = uniform_per_node
) -> FixedPair:
    """Build the fixed-pair kernel of a rule. Of a tree with many nodes only those that are reached are drawn.

    pick(pair, table, children, u, last) gives (index of the accepted child, anything), or (-1, the token that
    follows), drawn with the uniform `last`; u is as in `rows`, of `uniforms(tree)` = w·n + 1. table(p, q,
    drafts, **values) makes a float64 array of two dimensions, or a tuple of arrays, for up to `drafts`
    children of a node; by default it has the parameters, in one row."""

    def tables(p: Floats, q: Floats, tree: Tree, **values: float) -> tuple[Any, ...]:
        widest = max(tree.depths.count(depth) for depth in range(1, tree.depth + 1))
        made = table(p, q, widest, **values)
        return build_tables(p, q), made, np.array(tree.parents), by_depth(tree), CODES[tree.draft_sampling]

    def verify_fixed_pair(
        pair, table, parents, levels, sampling, draft_uniforms, verify_uniforms, tokens, accepted
    ):
        size = parents.size
        level = np.empty(size + 1, np.int64)
        children, nodes = np.empty(size, np.int64), np.empty(size, np.int64)
        width = (verify_uniforms.shape[0] - 1) // size
        u = np.empty(size * width)
        for s in range(accepted.size):
            level[:] = 0
            level[0] = 1
            depth = 0
            while True:
                count = 0
                if depth + 1 < levels.starts.size:
                    for node in levels.nodes[levels.starts[depth] : levels.starts[depth + 1]]:
                        if level[parents[node - 1]] == depth + 1:
                            nodes[count] = node
                            for i in range(width):
                                u[count * width + i] = verify_uniforms[(node - 1) * width + i, s]
                            count += 1
                if count == 0:
                    token = alias_draw(pair.p_alias, verify_uniforms[size * width, s])
                    break
                for k in range(count):
                    v = draft_uniforms[nodes[k] - 1, s]
                    children[k] = draw_child(pair, sampling, children, 0, k, count, v)
                last = verify_uniforms[size * width, s]
                chosen, token = pick(pair, table, children[:count], u[: count * width], last)
                if chosen < 0:
                    break
                tokens[depth, s] = children[chosen]
                depth += 1
                for k in range(count):
                    if children[k] == children[chosen]:
                        level[nodes[k]] = depth + 1
            end_step(tokens, accepted, s, depth, token)

    return FixedPair(tables, kernel(verify_fixed_pair), uniforms)
