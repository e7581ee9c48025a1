"""Medusa's tree: the candidates that independent heads are most likely to have right.

Head i gets its k-th most probable token right with probability accuracies[i][k], taken to be independent of
the other heads, so that a path is right with the product along it. The expected number of accepted tokens is
the sum of these products over all nodes, and the tree of the highest sum has the nodes of the highest
products: they never rise along a path, so the nodes chosen are connected.

Cai et al., "Medusa", arXiv 2401.10774, section 2.3.3. There it is a greedy search, which adds the node of the
highest accuracy, and is optimal under the independence that it assumes.

Cost: O(n log n) for n nodes."""

import heapq

import numpy as np
from numpy.typing import ArrayLike

from specsim.core._types import check_count, checked
from specsim.models._drafts.tree import MAX_NODES, Tree


@checked
def tree_of_heads(accuracies: ArrayLike, nodes: int) -> Tree:
    """Choose the tree of `nodes` tokens with the most right ones on average, given the accuracies of heads.

    Cai et al., "Medusa", arXiv 2401.10774, section 2.3.3.

    Parameters
    ----------
    accuracies : array_like of float, shape [heads, ranks]
        The probability that the token of each rank of each head is right, from 0 to 1, the most probable
        rank first; no rank may have more than the one before it.
    nodes : int
        Drafted tokens, from 1 to `MAX_NODES`; fewer where fewer have a chance.

    Returns
    -------
    Tree
        With siblings in the order of their ranks, `draft_sampling` "top", and one block for all heads.

    Raises
    ------
    ValueError, TypeError
        For another table of accuracies, and for numbers out of range.

    Examples
    --------
    >>> tree_of_heads([[0.6, 0.3], [0.5, 0.2]], nodes=3).parents  # .6, .6 · .5 and .3
    (0, 0, 1)
    """
    table = np.asarray(accuracies, dtype=float)
    if table.ndim != 2 or not table.size:
        raise ValueError(f"accuracies: shape {table.shape}; give a row of ranks for each head")
    if not ((table >= 0) & (table <= 1)).all() or (np.diff(table, axis=1) > 1e-12).any():
        raise ValueError("accuracies: expected probabilities that do not rise from one rank to the next")
    check_count("nodes", nodes, 1, MAX_NODES)
    chosen: list[tuple[int, ...]] = []  # the ranks on the path to each node
    waiting: list[tuple[float, tuple[int, ...]]] = [(-float(table[0, 0]), (0,))]
    while waiting and len(chosen) < nodes:
        worth, path = heapq.heappop(waiting)
        if worth == 0.0:
            break
        chosen.append(path)
        above, rank, head = path[:-1], path[-1], len(path) - 1
        if rank + 1 < table.shape[1]:
            beside = (*above, rank + 1)
            heapq.heappush(waiting, (worth / float(table[head, rank]) * float(table[head, rank + 1]), beside))
        if len(path) < len(table):
            heapq.heappush(waiting, (worth * float(table[len(path), 0]), (*path, 0)))
    if not chosen:
        raise ValueError("accuracies: the first head is never right; give it a chance above 0")
    chosen.sort(key=lambda path: (len(path), path))
    number = {(): 0} | {path: i for i, path in enumerate(chosen, 1)}
    return Tree(tuple(number[path[:-1]] for path in chosen), "top", len(table))
