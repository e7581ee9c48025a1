"""Recursive rejection of siblings drawn without replacement: the draft's row loses each token that was tried.

At a node with target row p and children s_1 … s_K drawn one after the other, each from D = q without the
tokens before it, renormalised: start with R = p; accept s_k with probability min(1, R(s_k)/D(s_k)), else
replace R by (R - D)₊ and D by D without s_k, both normalised; after the last rejection emit a token from R.

Lossless for siblings drawn without replacement and tried in the order in which they were drawn; sorted by
probability they give TV up to .7. Where q has fewer tokens than there are children, the tokens that fill up
(q = 0) are never tried: the step stops at the first of them. No acceptance is lost to tokens tried twice, and
if q covers p and K reaches the number of tokens of q, one of them is accepted for certain (the cover
property), which i.i.d. siblings lack.

Chen et al., "Sequoia", arXiv 2402.12374, Algorithm 2, which refills D uniformly; Jeon et al., "Recursive
speculative decoding", arXiv 2402.14160, which draws siblings by the Gumbel-top-k trick, alike.

Cost: a uniform for each node and one for the last token; O(K·V) a node from rows, O(K·(K + log V)) for a
fixed pair: a token once rejected has no mass in any later R, so R is (b·p - d·q)₊ with two numbers."""

from collections.abc import Sequence

from specsim.core._kernels import inner_kernel, kernel
from specsim.core._types import Row, StepLaw
from specsim.core.distributions import copy_row, total_of
from specsim.rules._common import nodewise
from specsim.rules._common.fixed_pairs import draw_residual, mass_without, residual_mass
from specsim.rules._common.tokenwise import normalise, positive_part
from specsim.rules._tree.greedy_multi_draft import LEAST


def node_law(p: Row, q: Row, children: Sequence[int]) -> StepLaw:
    """The probability of accepting each child, and the last residual."""
    target, passed = list(p), [0] * len(children)
    for k, x in enumerate(children):
        if q[x] == 0:  # q was exhausted
            break
        draft = normalise([weight * (y not in children[:k]) for y, weight in enumerate(q)])
        passed[k] = min(1, target[x] / draft[x])
        target = positive_part(target, draft)
    return nodewise.in_turn(passed), target


@kernel
def choose(p, q, children, u, values, weights):
    copy_row(p, weights)
    mass, left = 1.0, 1.0  # of the residual, and of q without the children tried
    draft = q.copy()
    for k in range(children.size):
        x = children[k]
        if q[x] == 0.0:
            break
        if u[k] * (draft[x] / left) * mass < weights[x]:
            return k
        before, mass = mass, 0.0
        for y in range(weights.size):
            weights[y] = max(weights[y] - before * (draft[y] / left), 0.0)
            mass += weights[y]
        draft[x] = 0.0
        left = total_of(draft)
        if mass == 0.0:
            break
    return -1


@inner_kernel
def pick(pair, table, children, u, last):
    b, d, left = 1.0, 0.0, 1.0
    for k in range(children.size):
        x = children[k]
        if pair.q[x] == 0.0:
            break
        if u[k] * (pair.q[x] / left) < b * pair.p[x] - d * pair.q[x]:
            return k, 0
        more = d + 1.0 / max(left, LEAST)
        mass = residual_mass(pair, b, more)
        if not mass > 0.0:
            break
        b, d = b / mass, more / mass
        left = mass_without(pair.q, pair.q_sums, children[: k + 1])
    return -1, draw_residual(pair, b, d, last)


RULE = nodewise.rule("without_replacement", node_law, choose, nodewise.fixed_pair(pick))
