"""Wrong on purpose: sampled children of low draft probability are pruned before verification.

Discarding a drafted token that the draft itself finds unlikely saves work in engines that verify by an exact
match, and costs nothing there. With samples and the accept test p/q it biases the output: a child that is
left is a sample of q *given* that it was not pruned, and a pruned one is neither accepted nor put into the
residual. On a chain it is confidence-scheduled verification with a confidence that has seen the drafted
token: the draft is cut at x where q(x) is low, and the next token drawn from p.

The rule that it imitates: Miao et al., arXiv 2305.09781; see `_tree/recursive_rejection.py`, and
`_chain/confidence_scheduled.py` for a cut that is right. llama.cpp drops the last drafted token below
`p_min`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from specsim.core._kernels import kernel
from specsim.core._parameters import Parameter
from specsim.core._types import Floats, Row
from specsim.rules._common import nodewise
from specsim.rules._common.base import Rule
from specsim.rules._tree import recursive_rejection

choose_from, pick_from = recursive_rejection.choose, recursive_rejection.pick


def node_law(p: Row, q: Row, children: Sequence[int], threshold: Any) -> tuple[list[Any], list[Any]]:
    """Recursive rejection of the children with q ≥ threshold."""
    kept = [k for k, x in enumerate(children) if q[x] >= threshold]
    accept, left = recursive_rejection.node_law(p, q, [children[k] for k in kept])
    chances = dict(zip(kept, accept, strict=True))
    return [chances.get(k, 0 * p[0]) for k in range(len(children))], left


@kernel
def unpruned(q, children, threshold):
    """The indices of the children with q ≥ threshold."""
    kept, count = np.empty(children.size, np.int64), 0
    for k in range(children.size):
        if q[children[k]] >= threshold:
            kept[count] = k
            count += 1
    return kept[:count]


@kernel
def choose(p, q, children, u, values, weights):
    kept = unpruned(q, children, values[0])
    k = choose_from(p, q, children[kept], u[kept], values, weights)
    return kept[k] if k >= 0 else -1


def table(p: Floats, q: Floats, drafts: int, threshold: float) -> Floats:
    """The residuals of recursive rejection; the last row holds the threshold."""
    return np.vstack([recursive_rejection.residuals(p, q, drafts), [threshold, 0.0]])


@kernel
def pick(pair, table, children, u, last):
    kept = unpruned(pair.q, children, table[-1, 0])
    k, token = pick_from(pair, table, children[kept], u[kept], last)
    return kept[k] if k >= 0 else -1, token


RULE = Rule(
    name="pruned_children",
    citation="arXiv 2305.09781 with pruned children",
    draft_sampling=("sampled",),
    law=nodewise.law(node_law),
    rows=nodewise.rows(choose),
    fixed_pair=nodewise.fixed_pair(pick, table),
    parameters=(Parameter("threshold", 0.3, 0.0, 1.0, "children with q below it are dropped"),),
    on_trees=True,
    control=True,
)
