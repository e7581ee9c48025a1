"""Wrong on purpose: K-SEQ that counts siblings with the same token once.

ρ and the residual are computed for the number of *distinct* tokens, while every sibling is tried: the
residual then does not fit what was accepted. The same happens to code that merges duplicates but forgets a
trial, or that keeps the K of the root at every depth.

The rule that it imitates: Sun et al., arXiv 2310.15141; see `_tree/k_seq.py`.
"""

from collections.abc import Sequence
from typing import Any

from specsim.core._kernels import kernel
from specsim.core._types import Row
from specsim.rules._common import nodewise
from specsim.rules._common.base import Rule
from specsim.rules._tree.k_seq import least_rho, rho_star, sequential, sequential_pick, table, with_rho


def node_law(p: Row, q: Row, children: Sequence[int]) -> tuple[list[Any], list[Any]]:
    """K-SEQ with K the number of distinct tokens."""
    drafts = len(set(children))
    return with_rho(p, q, children, drafts, least_rho(p, q, drafts))


@kernel
def distinct(children):
    count = 0
    for k in range(children.size):
        new = 1
        for j in range(k):
            if children[j] == children[k]:
                new = 0
        count += new
    return count


@kernel
def choose(p, q, children, u, values, weights):
    drafts = distinct(children)
    return sequential(p, q, children, u, rho_star(p, q, drafts), drafts, weights)


@kernel
def pick(pair, table, children, u, last):
    return sequential_pick(table, children, u, last, distinct(children))


RULE = Rule(
    name="k_seq_wrong_k",
    citation="arXiv 2310.15141 with the wrong K",
    draft_sampling=("sampled",),
    law=nodewise.law(node_law),
    rows=nodewise.rows(choose),
    fixed_pair=nodewise.fixed_pair(pick, table),
    on_trees=True,
    many_drafts=True,
    control=True,
)
