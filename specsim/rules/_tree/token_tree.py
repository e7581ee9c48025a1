"""A token tree with standard verification of the first child; the recovered token may be a sibling.

At a node the first child x, a sample of q, passes with probability min(1, p(x)/q(x)); otherwise a token y is
recovered from (p - q)₊, normalised. If another child has token y, the step continues there, else y ends it.
The chosen token is a sample of p, given everything drafted elsewhere; so the rule is lossless as long as the
first child was sampled from q and the others do not depend on whether it passes: siblings sampled
independently, or without replacement. It is the baseline for rules that test every child.

This is how sequence-level selection works in SpecTr (Sun et al., arXiv 2310.15141, section 4: keep the
branches that start with the chosen token), with the standard rule of Leviathan, Kalman & Matias, arXiv
2211.17192, as the selection.

Of a node's uniforms the first tests the first child and the second draws the recovered token; an only child
leaves that to the last uniform. Cost: a uniform for each node and one for the last token; O(V) a node from
rows, O(K + log V) for a fixed pair."""

from collections.abc import Sequence
from typing import Any

from specsim.core._kernels import inner_kernel
from specsim.core._types import Row, StepLaw
from specsim.core.distributions import cumulative_draw, is_zero
from specsim.rules._common import nodewise
from specsim.rules._common.fixed_pairs import draw_residual, index_of
from specsim.rules._common.nodewise import match
from specsim.rules._common.tokenwise import positive_part


def node_law(p: Row, q: Row, children: Sequence[int]) -> StepLaw:
    """The first child by the accept test, the others by recovery."""
    return recovery_law(children, min(1, p[children[0]] / q[children[0]]), positive_part(p, q), sampled=0)


def recovery_law(children: Sequence[int], passed: Any, residual: Row, sampled: int) -> StepLaw:
    """Child `sampled` is taken with probability `passed`, else the first child with a token of `residual`."""
    recovered, others = nodewise.matching(children, residual)
    accept = [(1 - passed) * chance for chance in recovered]
    accept[sampled] += passed
    return accept, others


@inner_kernel
def choose(p, q, children, u, values, weights):
    if u[0] * q[children[0]] < p[children[0]]:
        return 0
    for y in range(weights.size):
        weights[y] = max(p[y] - q[y], 0.0)
    return recover(children, u, weights)


@inner_kernel
def recover(children, u, weights):
    """Draw a token from weights[V] with u[1]; give the child that has it, or -1 and the token in weights."""
    if children.size == 1 or is_zero(weights):
        return -1
    return match(children, cumulative_draw(weights, u[1]), weights)


@inner_kernel
def pick(pair, table, children, u, last):
    x = children[0]
    if u[0] * pair.q[x] < pair.p[x]:
        return 0, x
    y = draw_residual(pair, 1.0, 1.0, u[1] if children.size > 1 else last)
    return index_of(children, y), y


RULE = nodewise.rule("token_tree", node_law, choose, nodewise.fixed_pair(pick))
