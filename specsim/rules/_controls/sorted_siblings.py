"""Wrong on purpose: recursive rejection of sampled siblings in the order of their draft probability.

To try the likeliest candidate first seems harmless. But the first of the sorted siblings is not a sample
of q, it is the likeliest of K, and the test against q is then made against the wrong law. TV up to .4
(without replacement .7).

The k-th child to be tried takes the k-th uniform.

The rule that it imitates: Miao et al., arXiv 2305.09781; see `_tree/recursive_rejection.py`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from specsim.core._kernels import kernel
from specsim.core._types import Row
from specsim.rules._common import nodewise
from specsim.rules._common.base import Rule
from specsim.rules._tree import recursive_rejection
from specsim.rules._tree.recursive_rejection import residuals

choose_in_order, pick_in_order = recursive_rejection.choose, recursive_rejection.pick


def node_law(p: Row, q: Row, children: Sequence[int]) -> tuple[list[Any], list[Any]]:
    """Recursive rejection in the order of falling q."""
    order = sorted(range(len(children)), key=lambda k: -q[children[k]])
    accept, left = recursive_rejection.node_law(p, q, [children[k] for k in order])
    chances = dict(zip(order, accept, strict=True))
    return [chances[k] for k in range(len(children))], left


@kernel
def sorted_children(q, children):
    """The indices of the children by falling q, ties in the order of sampling."""
    order = np.arange(children.size)
    for i in range(1, children.size):
        k = i
        while k > 0 and q[children[order[k - 1]]] < q[children[order[k]]]:
            order[k - 1], order[k] = order[k], order[k - 1]
            k -= 1
    return order


@kernel
def choose(p, q, children, u, values, weights):
    order = sorted_children(q, children)
    k = choose_in_order(p, q, children[order], u, values, weights)
    return order[k] if k >= 0 else -1


@kernel
def pick(pair, table, children, u, last):
    order = sorted_children(pair.q, children)
    k, token = pick_in_order(pair, table, children[order], u, last)
    return order[k] if k >= 0 else -1, token


RULE = Rule(
    name="sorted_siblings",
    citation="arXiv 2305.09781 with sorted siblings",
    draft_sampling=("sampled",),
    law=nodewise.law(node_law),
    rows=nodewise.rows(choose),
    fixed_pair=nodewise.fixed_pair(pick, residuals),
    on_trees=True,
    many_drafts=True,
    control=True,
)
