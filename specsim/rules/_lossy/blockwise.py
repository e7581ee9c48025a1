"""Blockwise parallel decoding: argmax matching, relaxed to near misses and to a least number of tokens.

Accept x at position i (from 0) iff it is among the `top_k` most probable tokens of p, the lower first among
ties, or |x - argmax p| ≤ `distance`, tokens being ordinals such as the brightness of a pixel, or i <
`min_block`; else emit argmax p, the lowest token among ties; the bonus is argmax p too. With S_i the tokens
that pass at i, a token follows

    π_i = q·1_{S_i} + (1 - q(S_i))·1_argmax

at drafted positions. The default parameters make it exact match, `greedy_match`: lossless for the target at
temperature 0, and for no other.

Stern, Shazeer & Uszkoreit, "Blockwise parallel decoding for deep autoregressive models", arXiv 1811.03115:
top-k selection, distance-based selection and minimum block size. Its blocks begin with the base model's own
prediction, which for us is the last token of the step before: `min_block` drafted tokens are a minimum of
`min_block` + 1 there.

Nothing is random in the verification. Cost: O(V) a position from rows, O(1) for a fixed pair."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from specsim.core._kernels import inner_kernel, kernel
from specsim.core._types import Floats, Row, Rows, StepLaw
from specsim.models._drafts.sampling import rank_tokens
from specsim.rules._chain.greedy_match import argmax, declared_of
from specsim.rules._common import tokenwise
from specsim.rules._common.base import end_step, named


def law(
    parents: Sequence[int], tokens: Sequence[int], p: Rows, q: Rows, top_k: Any, distance: Any, min_block: Any
) -> StepLaw:
    """All mass on the position of the first token that does not pass, and on the argmax there."""
    tokenwise.require_chain("blockwise", parents)
    n = 0
    while n < len(tokens) and (n < min_block or kept(p[n], tokens[n], top_k, distance)):
        n += 1
    return [int(node == n) for node in range(len(p))], [argmax(row) for row in p]


def kept(p: Row, x: int, top_k: Any, distance: Any) -> bool:
    """Whether x is near enough to the argmax of p, by rank or by value."""
    order = rank_tokens(p)
    return order.index(x) < top_k or abs(x - order[0]) <= distance


def declared(p: Row, q: Row | None, position: int, top_k: Any, distance: Any, min_block: Any) -> list[Any]:
    if q is not None and position < min_block:
        return list(q)
    order = sorted(range(len(p)), key=lambda x: (-p[x], x))
    ordinals = range(order[0] - int(distance), order[0] + int(distance) + 1)
    return declared_of(p, q, [x in ordinals or x in order[: int(top_k)] for x in range(len(p))])


@inner_kernel
def passes(p, best, x, top_k, distance):
    """Whether x is near enough to the argmax, `best`."""
    if abs(x - best) <= distance:
        return True
    rank = 0
    for y in range(p.size):
        if p[y] > p[x] or (p[y] == p[x] and y < x):
            rank += 1
    return rank < top_k


@kernel
def verify_rows(parents, draft_tokens, p, q, uniforms, values, tokens, accepted):
    """The row kernel; no uniform is used."""
    gamma = draft_tokens.shape[1]
    for b in range(draft_tokens.shape[0]):
        n = 0
        while n < gamma:
            x = draft_tokens[b, n]
            if n >= values[2] and not passes(p[b, n], np.argmax(p[b, n]), x, values[0], values[1]):
                break
            tokens[n, b] = x
            n += 1
        end_step(tokens, accepted, b, n, np.argmax(p[b, n]))


def shares(
    p: Floats, q: Floats, top_k: float, distance: float, min_block: float
) -> tuple[Floats, Floats, Floats]:
    """Accept everything in the first rows, then what is near the argmax; all else is the argmax."""
    best = int(p.argmax())
    near = np.abs(np.arange(p.size) - best) <= distance
    near[np.argsort(-p, kind="stable")[: int(top_k)]] = True
    accept = np.ones((int(min_block) + 1, p.size))
    accept[-1] = near
    sure = np.eye(1, p.size, best)[0]
    return accept, sure, sure


RULE = named("blockwise", law, verify_rows, tokenwise.fixed_pair(shares), declared=declared)
