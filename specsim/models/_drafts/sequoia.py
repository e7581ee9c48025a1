"""Sequoia's dynamic program: the fixed tree that emits most tokens, given acceptance by rank of sibling.

Let P_k be the probability that the k-th of a node's children is the one accepted, the same at every node (the
paper's positional acceptance assumption). A node is then reached with the product of P along its path, and a
step emits F(T) = Σ_v Π P_rank tokens on average, summed over all nodes; the root counts the last token.

With T[n, b] the best tree of n nodes, root included, whose root has b children,

    T[1, 0] = 1,      T[n, b] = max over m of T[n - m, b - 1] + P_b · max_j T[m, j],

where the last child has a subtree of m nodes. A limit on the depth adds one index, one less in that subtree.

A chain emits at most 1/(1 - P_1) tokens at any length, K chains side by side at most one token more, a binary
tree at most 1/(1 - P_1 - P_2).

Chen et al., "Sequoia", arXiv 2402.12374.

Cost: O(n² · B) for B ranks, times the depth if that is limited."""

from collections.abc import Sequence
from numbers import Real
from typing import Any

from specsim.core._types import check_counts, checked
from specsim.models._drafts.tree import Tree

#: F of the best tree of a size, and the sizes of its root's subtrees by rank; None if there is no such tree.
Best = tuple[Any, tuple[int, ...]] | None


@checked
def best_tree(rank_acceptance: Sequence[Any], nodes: int, depth: int | None = None) -> Tree:
    """Find the tree that emits most tokens, with siblings sampled without replacement.

    Chen et al., "Sequoia", arXiv 2402.12374.

    Parameters
    ----------
    rank_acceptance : sequence
        P_1, P_2, …, at least 0 and of sum at most 1. No node has more children than there are ranks.
    nodes : int
        Number of drafted tokens.
    depth : int, optional
        The largest depth allowed.

    Returns
    -------
    Tree
        Nodes are numbered level by level, siblings in order of rank.

    Raises
    ------
    ValueError
        For numbers out of range, and if no tree of that size is as shallow as `depth`.

    Examples
    --------
    >>> best_tree([0.6, 0.2], 4).parents
    (0, 0, 1, 3)
    """
    accept = _check(rank_acceptance)
    check_counts(nodes=nodes, depth=1 if depth is None else depth)
    tables: list[list[Best]] = [[None, (1, ()), *[None] * nodes]]  # by the number of levels below a node
    for _ in range(min(depth or 0, nodes)):
        tables.append(_best_subtrees(accept, nodes + 1, tables[-1]))
    if depth is None:
        tables = [_best_subtrees(accept, nodes + 1, None)]
    if tables[-1][nodes + 1] is None:
        shape = f"{depth} levels with {len(accept)} children each"
        raise ValueError(f"depth: {nodes} nodes do not fit into {shape}; give a larger depth or fewer nodes")
    parents: list[int] = []
    waiting = [(nodes + 1, len(tables) - 1)]  # size and table of every node, in the order of their numbers
    for number in range(nodes + 1):
        size, table = waiting[number]
        best: Any = tables[table][size]
        for child in best[1]:
            parents.append(number)
            waiting.append((child, max(table - 1, 0)))
    return Tree(tuple(parents), "without replacement")


def _best_subtrees(accept: Sequence[Any], size: int, below: list[Best] | None) -> list[Best]:
    """The best trees of 1 to `size` nodes, with subtrees from `below`, or from the result if None."""
    found: list[Best] = [None]
    inner = found if below is None else below
    table: list[list[Best]] = [[]]  # table[n][b]: exactly b children
    for n in range(1, size + 1):
        row: list[Best] = [(1, ()) if n == 1 else None]
        for b, passed in enumerate(accept):
            options: list[tuple[Any, int, tuple[int, ...]]] = []
            for m in range(1, n):
                first, last = table[n - m][b], inner[m]
                if first is not None and last is not None:
                    options.append((first[0] + passed * last[0], m, first[1]))
            best = max(options, key=lambda option: option[0], default=None)
            row.append(None if best is None else (best[0], (*best[2], best[1])))
        table.append(row)
        found.append(max(filter(None, row), key=lambda entry: entry[0], default=None))
    return found


def _check(rank_acceptance: Sequence[Any]) -> list[Any]:
    accept = list(rank_acceptance)
    if not accept:
        raise ValueError("rank_acceptance: empty; give P_1, P_2, …")
    for k, passed in enumerate(accept):
        is_number = isinstance(passed, Real)
        if not is_number or not passed >= 0:
            raise ValueError(f"rank_acceptance[{k}] = {passed} is not a probability; give numbers ≥ 0")
    if sum(accept) > 1 + 1e-9:
        raise ValueError(f"rank_acceptance: sums to {sum(accept)}, above 1; at most one child is accepted")
    return accept
