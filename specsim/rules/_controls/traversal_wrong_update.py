"""Wrong on purpose: traversal verification with the update S/(1 - q(c)) in place of S/(S + 1 - w).

A public implementation of traversal verification weighs a node like that after giving up its child c, as if
the mass of the draft that is left were what counts. TV up to .1, depending on the model. Where 1 - q(c) is 0
or the quotient exceeds 1 it is taken as 0 and 1.

The rule that it imitates: Weng et al., arXiv 2505.12398; see `_tree/traversal.py`.
"""

from collections.abc import Sequence
from typing import Any

from specsim.core._kernels import kernel
from specsim.core._types import Row
from specsim.rules._common.base import Rule
from specsim.rules._tree.traversal import fixed_pair, rows, traverse


def wrong_weight(w: Any, mass: Any, draft: Any) -> Any:
    """S/(1 - q(c)), clamped."""
    return min(mass / (1 - draft), 1) if draft < 1 else 0 * mass


def law(
    parents: Sequence[int], tokens: Sequence[int], p: Sequence[Row], q: Sequence[Row]
) -> tuple[list[Any], list[Any]]:
    """As traversal, but for the update; the root is accepted in any case."""
    stop, follow = traverse(parents, tokens, p, q, replaced=True, update=wrong_weight)
    stop[0] = 1 - sum(stop[1:])
    return stop, follow


@kernel
def wrong_weight_of_floats(w, mass, draft):
    return min(mass / (1.0 - draft), 1.0) if draft < 1.0 else 0.0


RULE = Rule(
    name="traversal_wrong_update",
    citation="a public implementation of arXiv 2505.12398",
    draft_sampling=("sampled",),
    law=law,
    rows=rows(True, wrong_weight_of_floats),
    fixed_pair=fixed_pair(True, wrong_weight_of_floats),
    on_trees=True,
    control=True,
)
