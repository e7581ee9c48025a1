"""Wrong on purpose: the greatest of K paths, verified as if it had been the only one.

Block verification with q in place of r, the law of the path that was chosen: the choice prefers tokens that
are more probable under p, so they come up too often. TV up to .4, depending on the model. On a chain nothing
is chosen, and the rule is right.

The rule that it imitates: Thomas & Pal, arXiv 2602.16961; see `_tree/greedy_multi_path_block.py`.
"""

from collections.abc import Sequence
from typing import Any

from specsim.core._kernels import inner_kernel
from specsim.core._types import Row
from specsim.rules._common.base import Rule
from specsim.rules._tree.greedy_multi_path_block import (
    fixed_pair,
    greatest_path,
    rows,
    uniforms,
    verified_alone,
)


def law(
    parents: Sequence[int], tokens: Sequence[int], p: Sequence[Row], q: Sequence[Row]
) -> tuple[list[Any], list[Any]]:
    """As greedy multi-path block verification, but for the law of the chosen path."""
    nodes, chosen, _, drafts = greatest_path(parents, tokens, p, q)
    return verified_alone(nodes, chosen, p, drafts)


@inner_kernel
def one_child(edges, low, mass, depth, degrees, counts, law):
    """One child, whatever was drafted, so that r is q."""
    law[0, :], law[1, :] = 0.0, 1.0
    return 1


RULE = Rule(
    name="greedy_path_as_drafted",
    citation="arXiv 2602.16961 without the law of the choice",
    draft_sampling=("sampled",),
    law=law,
    rows=rows(one_child),
    fixed_pair=fixed_pair(one_child),
    uniforms=uniforms,
    on_trees=True,
    control=True,
)
