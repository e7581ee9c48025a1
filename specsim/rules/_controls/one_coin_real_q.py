"""Wrong on purpose: one coin for all siblings, with the draft's real probabilities in the residual.

SGLang's tree kernel walks the siblings with a single coin, accepting the first x with coin < p(x_1) + … +
p(x): an inverse CDF, exact with one-hot residuals. To that end its array of draft probabilities must come in
as zeros; the kernel writes p into it at every tried child and recovers from (p - that)₊. Handed the draft's
real q instead, it takes off, at tokens never tried, mass that no test has used. The coin is the uniform of
the first child.

See `_lossy/two_thresholds.py` for the kernel as it is meant, and its source.
"""

from collections.abc import Sequence
from typing import Any

from specsim.core._kernels import kernel
from specsim.core._types import Row
from specsim.rules._common import nodewise
from specsim.rules._common.base import Rule
from specsim.rules._common.fixed_pairs import fixed_pair_from_rows
from specsim.rules._common.tokenwise import positive_part


def node_law(p: Row, q: Row, children: Sequence[int]) -> tuple[list[Any], list[Any]]:
    """Each child with its probability under p; recovery from (p - q)₊ without the children."""
    taken = [a if x in children else b for x, (a, b) in enumerate(zip(p, q, strict=True))]
    return [p[x] for x in children], positive_part(p, taken)


@kernel
def choose(p, q, children, u, values, weights):
    reached = 0.0
    for k in range(children.size):
        reached += p[children[k]]
        if u[0] < reached:
            return k
    for y in range(weights.size):
        weights[y] = max(p[y] - q[y], 0.0)
    for x in children:
        weights[x] = 0.0
    return -1


verify_rows = nodewise.rows(choose)

RULE = Rule(
    name="one_coin_real_q",
    citation="SGLang's tree_speculative_sampling_target_only, handed q",
    draft_sampling=("without replacement",),
    law=nodewise.law(node_law),
    rows=verify_rows,
    fixed_pair=fixed_pair_from_rows(verify_rows),
    on_trees=True,
    distinct=True,
    control=True,
)
