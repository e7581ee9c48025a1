"""Wrong on purpose: K-SEQ with ρ = 1, below ρ*.

A smaller ρ accepts more; but then more of some tokens is accepted than the target has of them, and no
residual can make up for it: cut off at 0 it leaves the output biased.

The rule that it imitates: Sun et al., arXiv 2310.15141; see `_tree/k_seq.py`.
"""

from collections.abc import Sequence
from typing import Any

from specsim.core._kernels import kernel
from specsim.core._types import Floats, Row
from specsim.rules._common import nodewise
from specsim.rules._common.base import Rule
from specsim.rules._tree.k_seq import pick, sequential, tables_with, with_rho


def node_law(p: Row, q: Row, children: Sequence[int]) -> tuple[list[Any], list[Any]]:
    """K-SEQ with ρ = 1."""
    return with_rho(p, q, children, len(children), 1)


@kernel
def choose(p, q, children, u, values, weights):
    return sequential(p, q, children, u, 1.0, children.size, weights)


def table(p: Floats, q: Floats, drafts: int) -> Floats:
    """As `k_seq.table`, with ρ = 1."""
    return tables_with(p, q, drafts, lambda count: 1.0)


RULE = Rule(
    name="k_seq_small_rho",
    citation="arXiv 2310.15141 with ρ < ρ*",
    draft_sampling=("sampled",),
    law=nodewise.law(node_law),
    rows=nodewise.rows(choose),
    fixed_pair=nodewise.fixed_pair(pick, table),
    on_trees=True,
    many_drafts=True,
    control=True,
)
