"""Greedy multi-draft: the K - 1 most probable tokens of q and one sample from the rest, verified optimally.

With Top the K - 1 tokens and q' = q without them, renormalised, x ~ q': apply the standard rule to x with q'
in place of q. A recovered token from (p - q')₊ may be in Top, and then that child is the next node. A child
is accepted with probability p(Top) + Σ_{x ∉ Top} min(p, q'), the most that any rule can reach with drafts
drawn in this way (the optimal-transport bound), so nothing is lost by so simple a test.

Lossless for drafts drawn in this way; where q has no mass outside Top, q' is uniform there. All that it needs
is that the last child was sampled from q without the children before it. So it is lossless for children drawn
without replacement too, though no longer optimal. With a single child it is the standard rule.

Hu et al., "Towards optimal multi-draft speculative decoding", arXiv 2502.18779 (greedy drafting).

Of a node's uniforms the first tests the last child and the second draws the recovered token; an only child
leaves that to the last uniform. Cost: a uniform for each node and one for the last token; O(V) a node from
rows, O(K² + log V) for a fixed pair, O(V) where q has fewer than K tokens."""

from collections.abc import Sequence

from specsim.core._kernels import inner_kernel
from specsim.core._types import Row, StepLaw
from specsim.models._drafts.sampling import remaining_weights, rest
from specsim.rules._common import nodewise
from specsim.rules._common.fixed_pairs import draw_residual, index_of, mass_without, residual_mass
from specsim.rules._common.tokenwise import normalise, positive_part
from specsim.rules._tree.token_tree import recover, recovery_law

#: The largest uniform below 1, and a number whose reciprocal does not overflow.
LAST, LEAST = 1.0 - 2.0**-53, 1e-300


def node_law(p: Row, q: Row, children: Sequence[int]) -> StepLaw:
    """The last child by the accept test against q', the others by recovery."""
    *top, x = children
    draft = normalise(remaining_weights(q, top))
    return recovery_law(children, min(1, p[x] / draft[x]), positive_part(p, draft), sampled=len(top))


@inner_kernel
def choose(p, q, children, u, values, weights):
    mass, x = rest(q, children[:-1], weights), children[-1]
    if u[0] * (weights[x] / mass) < p[x]:
        return children.size - 1
    for y in range(weights.size):
        weights[y] = max(p[y] - weights[y] / mass, 0.0)
    return recover(children, u, weights)


@inner_kernel
def pick(pair, table, children, u, last):
    count = children.size
    top, x = children[: count - 1], children[count - 1]
    again = u[1] if count > 1 else last
    if pair.q[x] == 0.0:  # q is exhausted, q' uniform
        return pick_uniform(pair.p, children, u, again)
    left = mass_without(pair.q, pair.q_sums, top)
    if u[0] * (pair.q[x] / left) < pair.p[x]:
        return count - 1, x
    scale = 1.0 / max(left, LEAST)
    # (p - q/left)₊, and on the tokens of `top`, where q' is 0, all of p: first what that adds to them
    mass = residual_mass(pair, 1.0, scale)
    added = 0.0
    for y in top:
        added += min(pair.p[y], pair.q[y] / left)
    goal = again * (added + mass)
    for k in range(count - 1):
        share = min(pair.p[top[k]], pair.q[top[k]] / left)
        if goal < share or (mass == 0.0 and k == count - 2):
            return k, top[k]
        goal -= share
    y = draw_residual(pair, 1.0, scale, min(max(goal, 0.0) / mass, LAST)) if mass > 0.0 else x
    return index_of(top, y), y


@inner_kernel
def pick_uniform(p, children, u, again):
    """The choice where q has no mass outside `top`, so that q' is uniform there. O(K·V)."""
    top, x = children[: children.size - 1], children[children.size - 1]
    share = 1.0 / (p.size - top.size)
    if u[0] * share < p[x]:
        return top.size, x
    mass = 0.0
    for y in range(p.size):
        mass += p[y] if index_of(top, y) >= 0 else max(p[y] - share, 0.0)
    goal, token = again * mass, x
    for y in range(p.size):
        weight = p[y] if index_of(top, y) >= 0 else max(p[y] - share, 0.0)
        if weight > 0.0:
            token = y
            goal -= weight
            if goal < 0.0:
                break
    return index_of(top, token), token


RULE = nodewise.rule("greedy_multi_draft", node_law, choose, nodewise.fixed_pair(pick))
