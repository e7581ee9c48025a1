"""Naive matching: sample the target's own token at a node, and continue with the child that has it.

One draw y from p at each node, by the uniform of its first child, is shared by all its children; if a child
has token y, it is the next node, else y ends the step. Every token emitted is a sample of p, whatever was
drafted and however, so the rule is lossless for all drafts, and never looks at q. For children sampled from q
a child is hit with probability Σ p·(1 - (1-q)^K).

The one draw is essential. With a fresh draw for each candidate, "accepted if any candidate matches its own
draw", the output is not the target's (a bug that foundation-model-stack's fms-extras had).

The NSS baseline of SpecInfer (Miao et al., arXiv 2305.09781); sampler match is the same on a chain.

Cost: a uniform for each node and one for the last token; O(V) a node from rows, O(K) for a fixed pair."""

from collections.abc import Sequence

from specsim.core._kernels import inner_kernel
from specsim.core._types import Row, StepLaw
from specsim.core.distributions import cumulative_draw
from specsim.rules._common import nodewise, tokenwise
from specsim.rules._common.fixed_pairs import alias_draw, index_of
from specsim.rules._common.nodewise import match


def node_law(p: Row, q: Row, children: Sequence[int]) -> StepLaw:
    """The first child with a token is taken when that token is drawn; the others' tokens end the step."""
    return nodewise.matching(children, p)


@inner_kernel
def choose(p, q, children, u, values, weights):
    return match(children, cumulative_draw(p, u[0]), weights)


@inner_kernel
def pick(pair, table, children, u, last):
    y = alias_draw(pair.p_alias, u[0])
    return index_of(children, y), y


RULE = nodewise.rule(
    "naive_matching", node_law, choose, nodewise.fixed_pair(pick), survival=tokenwise.survival(lambda p, q: p)
)
