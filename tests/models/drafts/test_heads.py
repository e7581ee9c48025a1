"""Trees of heads: no tree of as many nodes has a higher expected number of accepted tokens."""

import numpy as np
import pytest
from test_drafts import all_trees

from specsim.models import tree_of_heads


def worth(tree, table):
    """The sum over nodes of the product of accuracies along the path, each node's rank being its place among
    its siblings."""
    found, chance = 0.0, {0: 1.0}
    for node in range(1, tree.size + 1):
        parent = tree.parents[node - 1]
        rank = tree.children(parent).index(node)
        inside = tree.depths[node] <= len(table) and rank < len(table[0])
        chance[node] = chance[parent] * table[tree.depths[node] - 1][rank] if inside else 0.0
        found += chance[node]
    return found


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("nodes", [1, 3, 6])
def test_no_tree_is_better(seed, nodes):
    table = -np.sort(-np.random.default_rng(seed).dirichlet(np.ones(4), size=3), axis=1)
    best = max(worth(tree, table) for tree in all_trees(nodes, nodes))
    assert worth(tree_of_heads(table, nodes), table) == pytest.approx(best, rel=1e-12)


def test_trees_of_tables_by_hand():
    steep, flat = [[0.9, 0.1], [0.9, 0.1]], [[0.5, 0.5], [0.1, 0.1]]
    assert tree_of_heads(steep, 2).is_chain
    assert tree_of_heads(flat, 2).parents == (0, 0)
    tree = tree_of_heads([[0.5, 0.5, 0.0], [0.0, 0.0, 0.0]], 9)
    assert (tree.parents, tree.draft_sampling, tree.block) == ((0, 0), "top", 2)
