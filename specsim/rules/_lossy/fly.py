"""FLy: keep a draft that is not the target's argmax where the target is uncertain and the next drafts agree.

A drafted token *agrees* if it is the argmax of p, the lowest token among ties. Accept x_i if it agrees. If
not, accept it iff the entropy of p_i over log V is at least θ and the next W tokens are drafted, i + W < γ
counted from 0, and all agree. Else emit argmax p_i; the bonus is argmax p too.

What is emitted at a position depends on the tokens before it and on rows ahead of it. A token at position i
is argmax p_i if one of the W tokens before it did not agree, since it was looked at when that one was kept;
if i + W ≥ γ; and where the entropy is below θ. Elsewhere it follows

    π(y) = q_i(y)·Π_{k=1…W} q_{i+k}(a_{i+k}) for y ≠ argmax p_i,   and is argmax p_i with the rest,

where a_{i+1}, a_{i+2}, … are the argmaxes of the target after y, and p and q are rows along y, a_{i+1}, …. A
window that is not shorter than the draft leaves greedy match.

Li et al., "Training-free loosely speculative decoding", arXiv 2511.22972: the entropy gate and the deferred
window. Implementations have θ = .3 and W = 6, for drafts that are longer than ours by default. That the whole
window must be drafted is as in vLLM (`rejection_sample_method="fly"`), which takes the entropy of the three
largest probabilities. What it does where the target is sampled, and the paper's acceleration of target and
drafter, are left out. π is derived here.

The entropy is computed in floating point, and how it compares is then taken as given.

Nothing is random in the verification. Cost: O(V) a position from rows, O(1) for a fixed pair."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from specsim.core._elementary import log
from specsim.core._kernels import inner_kernel, kernel
from specsim.core._types import Floats, Row, Rows, StepLaw, Tokens
from specsim.core.distributions import alias_table
from specsim.models import Tree
from specsim.models._drafts.tree import MAX_NODES
from specsim.rules._chain.greedy_match import argmax
from specsim.rules._common import tokenwise
from specsim.rules._common.base import FixedPair, RowAfter, end_step, named
from specsim.rules._common.fixed_pairs import alias_draw


def law(
    parents: Sequence[int], tokens: Sequence[int], p: Rows, q: Rows, threshold: Any, window: Any
) -> StepLaw:
    """All mass on the position of the first token that is not accepted, and on the argmax there."""
    tokenwise.require_chain("fly", parents)
    agrees = [argmax(row)[x] == 1 for row, x in zip(p, tokens, strict=False)]
    n, ahead = 0, int(window)
    while n < len(tokens) and (
        agrees[n]
        or (n + ahead < len(tokens) and all(agrees[n + 1 : n + 1 + ahead]) and is_open(p[n], threshold))
    ):
        n += 1
    return [int(node == n) for node in range(len(p))], [argmax(row) for row in p]


def is_open(p: Row, threshold: Any) -> bool:
    """Whether the entropy of p, over log V, is at least the threshold."""
    entropy = -sum(float(a) * math.log(float(a)) for a in p if a)
    return entropy >= float(threshold) * math.log(len(p))


def declared(prefix: Tokens, p: RowAfter, q: RowAfter, tree: Tree, threshold: Any, window: Any) -> list[Any]:
    position, ahead = len(prefix), int(window)

    def top(path: Tokens) -> int:
        row = p(path)
        return list(row).index(max(row))

    row, best = p(prefix), top(prefix)
    kept = [0 * a for a in row]
    looked_at = any(prefix[j] != top(prefix[:j]) for j in range(max(0, position - ahead), position))
    if not looked_at and position + ahead < tree.depth and is_open(row, threshold):
        for y, chance in enumerate(q(prefix)):
            if chance and y != best:
                path, kept[y] = (*prefix, y), chance
                for _ in range(ahead):
                    following = top(path)
                    kept[y] *= q(path)[following]
                    path = (*path, following)
    kept[best] = 1 - sum(kept)
    return kept


@inner_kernel
def uncertain(p, threshold):
    """Whether the entropy of p, over log V, is at least the threshold."""
    entropy = 0.0
    for y in range(p.size):
        if p[y] > 0.0:
            entropy -= p[y] * log(p[y])
    return entropy >= threshold * log(p.size)


@kernel
def verify_rows(parents, draft_tokens, p, q, uniforms, values, tokens, accepted):
    """The row kernel; no uniform is used."""
    gamma, window = draft_tokens.shape[1], int(values[1])
    agrees = np.empty(gamma, np.bool_)
    for b in range(draft_tokens.shape[0]):
        for i in range(gamma):
            agrees[i] = draft_tokens[b, i] == np.argmax(p[b, i])
        n = 0
        while n < gamma:
            if not agrees[n] and not (in_agreement(agrees, n, window) and uncertain(p[b, n], values[0])):
                break
            tokens[n, b] = draft_tokens[b, n]
            n += 1
        end_step(tokens, accepted, b, n, np.argmax(p[b, n]))


@inner_kernel
def in_agreement(agrees, n, window):
    """Whether the next `window` tokens after n are drafted and agree."""
    agreed = n + window < agrees.size
    for i in range(n + 1, min(n + 1 + window, agrees.size)):
        agreed = agreed and agrees[i]
    return agreed


def tables(p: Floats, q: Floats, tree: Tree, threshold: float, window: float) -> tuple[Any, ...]:
    """The draft's alias table, the argmax, the window, or one that no draft has where p is too certain."""
    kept = int(window) if uncertain(p, threshold) else MAX_NODES
    return alias_table(q), np.int64(p.argmax()), np.int64(kept)


@kernel
def verify_fixed_pair(draft, best, window, draft_uniforms, verify_uniforms, tokens, accepted):
    gamma = tokens.shape[0] - 1
    agrees = np.empty(gamma, np.bool_)
    for s in range(tokens.shape[1]):
        for i in range(gamma):
            tokens[i, s] = alias_draw(draft, draft_uniforms[i, s])
            agrees[i] = tokens[i, s] == best
        n = 0
        while n < gamma and (agrees[n] or in_agreement(agrees, n, window)):
            n += 1
        end_step(tokens, accepted, s, n, best)


RULE = named("fly", law, verify_rows, FixedPair(tables, verify_fixed_pair), declared=declared)
