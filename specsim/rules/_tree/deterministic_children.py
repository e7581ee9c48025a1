"""One-hot verification of several children: accept x with probability R(x), else remove it from R.

At a node start with R = p; a child x passes with probability R(x), as if the draft had been certain of it;
otherwise R loses x, and the next child is tried; after the last a token is drawn from R. A token tried before
is skipped. Each round is one-hot verification with target R, so the rule is lossless whatever the children
and whatever they depend on: the k most probable tokens (EAGLE-2, EAGLE-3), drawn without replacement, or
sampled. It accepts and emits as naive matching does, with another use of the uniforms.

What is *not* lossless is to sample children and then keep those of high probability: their selection depends
on q; see `pruned_children`. Nor to use p/q instead of p for children that are not samples of q.
EAGLE's use of q = 1 has been called a bug several times; it is exact.

Li et al., "EAGLE-2", arXiv 2406.16858, and the function `evaluate_posterior` of its public code.

Cost: a uniform for each node and one for the last token; O(V) a node from rows, O(K² + log V) for a fixed
pair."""

from collections.abc import Sequence

from specsim.core._kernels import inner_kernel
from specsim.core._types import Row, StepLaw
from specsim.core.distributions import copy_row, total_of
from specsim.rules._common import nodewise, tokenwise
from specsim.rules._common.fixed_pairs import draw_without, index_of
from specsim.rules._common.tokenwise import normalise


def node_law(p: Row, q: Row, children: Sequence[int]) -> StepLaw:
    """The probability of accepting each child, and what is left of p."""
    left, passed = list(p), []
    for x in children:
        passed.append(left[x])
        without = [weight * (y != x) for y, weight in enumerate(left)]
        left = normalise(without) if any(without) else left
    return nodewise.in_turn(passed), left


@inner_kernel
def choose(p, q, children, u, values, weights):
    copy_row(p, weights)
    for k in range(children.size):
        x = children[k]
        mass = total_of(weights)
        if u[k] * mass < weights[x]:
            return k
        if weights[x] < mass:
            weights[x] = 0.0
    return -1


@inner_kernel
def pick(pair, table, children, u, last):
    left = 1.0
    for k in range(children.size):
        x = children[k]
        if index_of(children[:k], x) < 0:
            if u[k] * left < pair.p[x]:
                return k, x
            left -= pair.p[x]
    return -1, draw_without(pair.p, pair.p_sums, pair.p_guide, children, last)


RULE = nodewise.rule(
    "deterministic_children",
    node_law,
    choose,
    nodewise.fixed_pair(pick),
    survival=tokenwise.survival(lambda p, q: p),
)
