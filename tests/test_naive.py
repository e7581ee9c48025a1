"""The row kernels against `naive.py`: compiled, they emit what the naive rules emit, step by step."""

from zlib import crc32

import numpy as np
import pytest
from conftest import awkward_pairs
from laws import every
from naive import NAIVE
from test_rules import IMITATED, awkward_uniforms, settings_of

from specsim import rules
from specsim.drafts import Tree, draw_siblings

STEPS = 200
#: Kernels and naive rules do not calculate in the same order, and decide alike only where it is not as close as this.
CLOSE = 1e-11

CHAINS = [(2, (0,)), (6, (0,)), (2, (0, 1, 2, 3)), (3, (0, 1, 2)), (4, (0, 1)), (5, (0, 1, 2, 3, 4))]
TREES = [
    (2, (0, 0)),
    (4, (0, 0, 0)),
    (6, (0, 0, 0, 0)),
    (3, (0, 0, 1, 2)),
    (2, (0, 0, 1, 1, 2, 2)),
    (3, (0, 0, 0, 1, 2, 3, 4, 5)),
    (3, (0, 1, 0, 1, 2, 2)),
    (3, (0, 1, 1)),
    (5, (0, 0, 1, 1, 2, 2, 3)),
]


def shapes(rule, drawing):
    """(V, tree) of what the rule verifies, whatever it claims there."""
    for size, parents in CHAINS + TREES if rule.on_trees else CHAINS:
        tree = Tree(parents, drawing)
        widest = max(len(tree.children(node)) for node in range(tree.size + 1))
        if not ((rule.many_drafts and tree.is_chain) or (tree.distinct and widest > size)):
            yield size, tree


def awkward_rows(rng, count, size):
    """Pairs with zeros, ties, equal and disjoint rows; no tiny entries, whose sums only their order decides."""
    rows = np.array(awkward_pairs(rng, count, size))
    rows[rows < 1e-6] = 0.0
    return rows / rows.sum(axis=2, keepdims=True)


def awkward_drafts(rng, tree, size, steps):
    """tokens[B, n], p and q[B, n + 1, V]; nodes that carry the same tokens have the same rows, as from a model."""
    nodes = tree.size + 1
    p, q = (rows.reshape(steps, nodes, size) for rows in awkward_rows(rng, steps * nodes, size))
    tokens, path = np.empty((steps, tree.size), dtype=np.int64), np.zeros((nodes, steps), dtype=np.int64)
    for node in range(nodes):
        if node:
            path[node] = path[tree.parents[node - 1]] * (size + 1) + tokens[:, node - 1] + 1
        for twin in range(node):
            alike = path[node] == path[twin]
            p[alike, node], q[alike, node] = p[alike, twin], q[alike, twin]
        if children := tree.children(node):
            columns = [child - 1 for child in children]
            row = np.ascontiguousarray(q[:, node])
            tokens[:, columns] = draw_siblings(tree.drawing, row, rng.random((len(columns), steps))).T
    return tokens, p, q


def differing(rule, naive, drawing, steps=STEPS):
    """How many steps were compared, in how many only rounding differs, and the steps that differ otherwise."""
    compared, close, wrong = 0, 0, []
    for size, tree in shapes(rule, drawing):
        rng = np.random.default_rng([crc32(rule.name.encode()), size, tree.size])
        drafted, p, q = awkward_drafts(rng, tree, size, steps)
        q = np.ascontiguousarray(q[:, : rule.num_rows(tree)])
        u = awkward_uniforms(rng, (rule.uniforms(tree, size), steps))
        parents = np.broadcast_to(np.array(tree.parents), drafted.shape)
        tokens = np.full((tree.depth + 1, steps), -7, dtype=np.int32)
        accepted = np.full(steps, -7, dtype=np.int64)
        rule.rows(parents, drafted, p, q, u, rule.array(), tokens, accepted)
        for s in range(steps):
            step = tree.parents, drafted[s].tolist(), p[s].tolist(), q[s].tolist()
            emitted = [token for token in tokens[:, s].tolist() if token >= 0]
            assert tokens[len(emitted) :, s].tolist() == [-1] * (tree.depth - accepted[s])
            coins = u[:, s].tolist()
            compared += 1
            if naive(*step, coins, **rule.values) != emitted:
                if any(naive(*step, moved, **values) == emitted for moved, values in nearby(coins, rule.values)):
                    close += 1
                else:
                    wrong.append((*step, coins, emitted))
    return compared, close, wrong


def nearby(u, values):
    """`u` and `values` with one uniform moved by little."""
    for i, coin in enumerate(u):
        for moved in (max(coin - CLOSE, 0.0), min(coin + CLOSE, 1 - 2.0**-53)):
            yield [*u[:i], moved, *u[i + 1 :]], values
