"""A draft tree as engines list it: its paths from the root to each leaf."""

from __future__ import annotations

from specsim.drafts import Tree


def leaf_paths(tree: Tree) -> list[list[int]]:
    """The nodes from the root to every leaf, leaves in order, padded with -1 to the depth of the tree.

    >>> leaf_paths(Tree((0, 0, 1)))
    [[0, 2, -1], [0, 1, 3]]
    """
    leaves = [node for node in range(tree.size + 1) if not tree.children(node)]
    return [[0, *tree.path(leaf), *[-1] * (tree.depth - tree.depths[leaf])] for leaf in leaves]
