"""Greedy multi-draft: the K - 1 most probable tokens of q and one sample from the rest, verified optimally.

With Top the K - 1 tokens and q' = q without them, renormalised, x ~ q': apply the standard rule to x with q' in place
of q. A recovered token from (p - q')₊ may be in Top, and then that child is the next node. A child is accepted with
probability p(Top) + Σ_{x ∉ Top} min(p, q'), which is the most that any rule can reach with drafts drawn in this way
(the optimal-transport bound), so nothing is lost by so simple a test.

Lossless for drafts drawn in this way; where q has no mass outside Top, q' is uniform there. With a single child it is
the standard rule, K = 1.

Hu et al., "Towards optimal multi-draft speculative decoding", arXiv 2502.18779 (greedy drafting).

Cost: a uniform for each node and one for the last token; O(V + K²) a node from rows, O(K² + log V) for a fixed pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from specsim.distributions import Floats, alias_table
from specsim.drafts.drawing import ranked, remaining
from specsim.jit import kernel
from specsim.rules import top_down
from specsim.rules.anatomy import Rule
from specsim.rules.fixed_pairs import alias_draw
from specsim.rules.token_by_token import normalised, positive_part
from specsim.rules.tree.token_tree import match, matched

# --- law -------------------------------------------------------------------------------------------------


def at_a_node(p: Sequence[Any], q: Sequence[Any], children: Sequence[int]) -> tuple[list[Any], list[Any]]:
    """The last child by the accept test against q', the others by recovery."""
    *top, x = children
    draft = normalised(remaining(q, top))
    return matched(children, min(1, p[x] / draft[x]), positive_part(p, draft), sampled=len(top))


# --- rows ------------------------------------------------------------------------------------------------


@kernel
def choose(p, q, children, u, values, weights):  # type: ignore[no-untyped-def]
    rest(q, children[:-1], weights)
    mass, x = weights.sum(), children[-1]
    if u[0] * weights[x] < p[x] * mass:
        return children.size - 1
    for y in range(weights.size):
        weights[y] = max(p[y] - weights[y] / mass, 0.0)
    return match(children, u, weights)


@kernel
def rest(q, top, weights):  # type: ignore[no-untyped-def]
    """Fill weights[V] with q without the tokens of `top`; where that is nothing, with ones without them."""
    weights[:] = q
    weights[top] = 0.0
    if weights.max() == 0.0:
        weights[:] = 1.0
        weights[top] = 0.0


# --- a fixed pair ----------------------------------------------------------------------------------------


def table(p: Floats, q: Floats, drafts: int) -> Floats:
    """For K children: row 2K has p/q' by token, row 2K + 1 the alias table of (p - q')₊, as floats: [2·drafts+2, V]."""
    rows = np.zeros((2 * drafts + 2, p.size))
    for count in range(1, min(drafts, p.size) + 1):
        draft = np.array(normalised(remaining(q.tolist(), ranked(q.tolist())[: count - 1])))
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            rows[2 * count] = np.where(draft > 0.0, np.minimum(p / draft, 1.0), 0.0)
        excess = np.maximum(p - draft, 0.0)
        rows[2 * count + 1] = alias_table(excess if excess.any() else p).view(np.float64)
    return rows


@kernel
def pick(pair, table, children, u, last):  # type: ignore[no-untyped-def]
    count = children.size
    x = children[count - 1]
    if u[0] < table[2 * count, x]:
        return count - 1, x
    y = alias_draw(table[2 * count + 1].view(np.int64), u[1] if count > 1 else last)
    for k in range(count - 1):
        if children[k] == y:
            return k, y
    return -1, y


# --- registry --------------------------------------------------------------------------------------------

RULE = Rule(
    name="greedy_multi_draft",
    citation="Hu et al. 2025, arXiv 2502.18779",
    drawings=("top and sample",),
    law=top_down.law(at_a_node),
    rows=top_down.rows(choose),
    uniforms=top_down.uniforms,
    fixed_pair=top_down.fixed_pair(pick, table),
    on_trees=True,
    many_drafts=True,
    distinct=True,
)
