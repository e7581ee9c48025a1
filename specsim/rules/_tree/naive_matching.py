"""Naive matching: sample the target's own token at a node, and continue with the child that has it.

One draw y from p at each node, by the uniform of its first child, is shared by all its children; if a child
has token y, it is the next node, else y ends the step. Every token emitted is a sample of p, whatever was
drafted and however, so the rule is lossless for all drafts, and never looks at q. For children sampled from q
a child is hit with probability Σ p·(1 - (1-q)^K).

The one draw is essential. With a fresh draw for each candidate, "accepted if any candidate matches its own
draw", the output is not the target's (a bug that foundation-model-stack's fms-extras had).

The NSS baseline of SpecInfer (Miao et al., arXiv 2305.09781); sampler match is the same on a chain.

Cost: a uniform for each node and one for the last token; O(V) a node from rows, O(K) for a fixed pair.
"""

from collections.abc import Sequence

from specsim.core._kernels import inner_kernel
from specsim.core._types import Row, StepLaw
from specsim.core.distributions import cumulative_draw
from specsim.rules._common import nodewise, tokenwise
from specsim.rules._common.base import Rule
from specsim.rules._common.fixed_pairs import alias_draw, index_of


def node_law(p: Row, q: Row, children: Sequence[int]) -> StepLaw:
    """The first child with a token is taken when that token is drawn; the others' tokens end the step."""
    accept = [p[x] if x not in children[:k] else 0 * p[x] for k, x in enumerate(children)]
    missed = 1 - sum(accept)
    others = [0 * weight if x in children else weight for x, weight in enumerate(p)]
    return accept, [weight / missed for weight in others] if missed else list(p)


@inner_kernel
def choose(p, q, children, u, values, weights):
    y = cumulative_draw(p, u[0])
    k = index_of(children, y)
    if k < 0:
        weights[:] = 0.0
        weights[y] = 1.0
    return k


@inner_kernel
def pick(pair, table, children, u, last):
    y = alias_draw(pair.p_alias, u[0])
    return index_of(children, y), y


RULE = Rule(
    name="naive_matching",
    citation="Miao et al. 2024 (SpecInfer), arXiv 2305.09781, its baseline",
    draft_sampling=("sampled", "without replacement", "top", "top and sample"),
    law=nodewise.law(node_law),
    rows=nodewise.rows(choose),
    fixed_pair=nodewise.fixed_pair(pick),
    survival=tokenwise.survival(tokenwise.target_chance),
    on_trees=True,
    reads_draft=False,
)
