"""Typical acceptance on a tree: take the longest path whose every token is typical, then the argmax.

A drafted token x after a path is *typical* if p(x) > t = min(ε, δ·exp(-H)) there, the test of `typical`. Of
the nodes whose tokens and those above them are all typical the deepest is taken, of equally deep ones that
whose path is likeliest under the target, and argmax p after it follows, the lowest token among ties.

The drafts are the most probable tokens of q, so that nothing is random, and a step emits one sequence: what
is declared of a token is its certainty. Which token that is depends on rows ahead of it, since a path is
taken for what can follow.

Cai et al., "Medusa", arXiv 2401.10774, and the function `evaluate_posterior` of its code. Of paths that are
as likely the first in the order of the tree is taken.

Cost: O(V) a node from rows, O(1) for a fixed pair."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from specsim.core._kernels import inner_kernel, kernel
from specsim.core._types import Floats, Rows, StepLaw, Tokens
from specsim.models import Tree
from specsim.models._drafts.sampling import rank_tokens
from specsim.rules._chain.greedy_match import argmax
from specsim.rules._common.base import FixedPair, RowAfter, end_step, named
from specsim.rules._common.fixed_pairs import CODES, build_tables, by_parent, draw_tree
from specsim.rules._lossy import typical
from specsim.rules._lossy.typical import threshold


def law(parents: Sequence[int], tokens: Sequence[int], p: Rows, q: Rows, epsilon: Any, delta: Any) -> StepLaw:
    """All mass on the node that is taken, and on the argmax there."""
    reached: dict[int, tuple[int, Any]] = {0: (0, 1)}  # the depth of a node, and the chance of its path
    for node, (parent, x) in enumerate(zip(parents, tokens, strict=True), 1):
        if parent in reached and typical.acceptance(p[parent], q[0], x, epsilon, delta):
            depth, chance = reached[parent]
            reached[node] = depth + 1, chance * p[parent][x]
    taken = max(reached, key=lambda node: reached[node])  # the first of equals
    return [int(node == taken) for node in range(len(p))], [argmax(row) for row in p]


def declared(prefix: Tokens, p: RowAfter, q: RowAfter, tree: Tree, epsilon: Any, delta: Any) -> list[Any]:
    """The certainty of the step's next token, level by level: the paths on which all tokens are typical."""
    paths: dict[int, tuple[Tokens, Any]] = {0: ((), 1)}
    for node in range(tree.size + 1):
        if node in paths:
            path, chance = paths[node]
            row = list(p(path))
            drafted = rank_tokens(q(path)) if tree.children(node) else ()
            for child, x in zip(tree.children(node), drafted, strict=False):
                if typical.acceptance(row, row, x, epsilon, delta):
                    paths[child] = (*path, x), chance * row[x]
    longest, _ = max((paths[node] for node in sorted(paths)), key=lambda one: (len(one[0]), one[1]))
    emitted = (*longest, argmax(p(longest)).index(1))
    return [int(y == emitted[len(prefix)]) for y in range(len(p(prefix)))]


#: By so much the chance of a path must be larger than that of another one: products round.
ROUNDING = 1.0 + 1e-12


@inner_kernel
def deepest(parents, chances, depths, masses):
    """The node that is taken; `chances` has p of each token, 0 of one that is not typical."""
    best = 0
    depths[0], masses[0] = 0, 1.0
    for j in range(parents.size):
        above = parents[j]
        depths[j + 1] = -1
        if depths[above] >= 0 and chances[j] > 0.0:
            depths[j + 1], masses[j + 1] = depths[above] + 1, masses[above] * chances[j]
            longer = depths[j + 1] - depths[best]
            if longer > 0 or (longer == 0 and masses[j + 1] > masses[best] * ROUNDING):
                best = j + 1
    return best


@inner_kernel
def emit(parents, drafted, taken, length, last, column, tokens, accepted):
    """Write the path to the node `taken`, of `length` tokens, and `last`."""
    end_step(tokens, accepted, column, length, last)
    node = taken
    for i in range(length - 1, -1, -1):
        tokens[i, column] = drafted[node - 1]
        node = parents[node - 1]


@kernel
def verify_rows(parents, draft_tokens, p, q, uniforms, values, tokens, accepted):
    """The row kernel; no uniform is used."""
    size = draft_tokens.shape[1]
    chances, depths = np.empty(size), np.empty(size + 1, np.int64)
    limits, masses = np.empty(size + 1), np.empty(size + 1)
    for b in range(draft_tokens.shape[0]):
        for node in range(size + 1):
            limits[node] = threshold(p[b, node], values[0], values[1])
        for j in range(size):
            above = parents[b, j]
            chance = p[b, above, draft_tokens[b, j]]
            chances[j] = chance if chance > limits[above] else 0.0
        taken = deepest(parents[b], chances, depths, masses)
        last = np.argmax(p[b, taken])
        emit(parents[b], draft_tokens[b], taken, depths[taken], last, b, tokens, accepted)


def tables(p: Floats, q: Floats, tree: Tree, epsilon: float, delta: float) -> tuple[Any, ...]:
    """The pair's tables, the tree, p of the tokens that are typical, and the argmax."""
    kept = np.where(p > threshold(p, epsilon, delta), p, 0.0)
    best = np.int64(p.argmax())
    return build_tables(p, q), np.array(tree.parents), by_parent(tree), CODES[tree.draft_sampling], kept, best


@kernel
def verify_fixed_pair(
    pair, parents, children, sampling, kept, best, draft_uniforms, verify_uniforms, tokens, accepted
):
    size = parents.size
    drafted, siblings = np.empty(size, np.int64), np.empty(size, np.int64)
    chances, depths = np.empty(size), np.empty(size + 1, np.int64)
    masses = np.empty(size + 1)
    for s in range(accepted.size):
        draw_tree(pair, children, sampling, draft_uniforms[:, s], siblings, drafted)
        for j in range(size):
            chances[j] = kept[drafted[j]]
        taken = deepest(parents, chances, depths, masses)
        emit(parents, drafted, taken, depths[taken], best, s, tokens, accepted)


RULE = named(
    "typical_tree",
    law,
    verify_rows,
    FixedPair(tables, verify_fixed_pair),
    declared=declared,
    parameters=typical.RULE.parameters,
)
