"""How the children of a node are sampled from the draft's row q.

A rule is lossless for a sampling method, never on its own: what a verifier may conclude from a drafted token
depends on how it was drafted."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from specsim.core._files import read_table
from specsim.core._kernels import inner_kernel, kernel
from specsim.core._types import Floats, Ints
from specsim.core.distributions import copy_row, cumulative_draw, is_zero, total_of

#: How K siblings are sampled from q. For a single child the first two methods are the same.
SAMPLING_METHODS: dict[str, str] = read_table("kinds")["siblings"]
#: The methods whose siblings never have the same token.
DISTINCT = frozenset({"without replacement", "top", "top and sample"})
#: Weights between two sums that `_draw` keeps.
BLOCK = 16


def sibling_laws(way: str, q: Sequence[Any], count: int) -> Iterator[tuple[tuple[int, ...], Any]]:
    """Every ordered draw of `count` siblings from q, with its probability, which is positive."""
    if way in DISTINCT and count > len(q):
        raise ValueError(f"count: {count} distinct siblings cannot be drawn from {len(q)} tokens; give fewer")
    first = tuple(rank_tokens(q)[: {"top": count, "top and sample": count - 1}.get(way, 0)])

    def extend(drawn: tuple[int, ...], probability: Any) -> Iterator[tuple[tuple[int, ...], Any]]:
        if len(drawn) == count:
            yield drawn, probability
            return
        weights = remaining_weights(q, drawn) if way in DISTINCT else list(q)
        mass = sum(weights)
        for token, weight in enumerate(weights):
            if weight > 0:
                yield from extend((*drawn, token), probability * weight / mass)

    yield from extend(first, q[0] * 0 + 1)


def remaining_weights(q: Sequence[Any], drawn: Sequence[int]) -> list[Any]:
    """Weights of the next distinct sibling: q without the tokens `drawn`, or ones if that has no mass."""
    left = [weight * (token not in drawn) for token, weight in enumerate(q)]
    return left if any(left) else [weight * 0 + (token not in drawn) for token, weight in enumerate(q)]


@inner_kernel
def rest(q, drawn, weights):
    """Fill weights[V] with those of `remaining_weights`; gives their sum."""
    copy_row(q, weights)
    for x in drawn:
        weights[x] = 0.0
    if is_zero(weights):
        weights[:] = 1.0
        for x in drawn:
            weights[x] = 0.0
    return total_of(weights)


def rank_tokens(q: Sequence[Any]) -> list[int]:
    """Tokens by falling probability, the lower one first among ties."""
    return sorted(range(len(q)), key=lambda token: -q[token])


def draw_siblings(draft_sampling: str, q: Floats, u: Floats) -> Ints:
    """Sample siblings [K, B] below many nodes from their rows q [B, V], by inverse CDF with u [K, B]."""
    tokens = np.empty(u.shape, dtype=np.int64)
    sure = {"top": len(u), "top and sample": len(u) - 1}.get(draft_sampling, 0)
    if sure:
        tokens[:sure] = np.argsort(-q, axis=1, kind="stable")[:, :sure].T
    if draft_sampling in DISTINCT:
        _draw_distinct(q, sure, u, tokens)
    else:
        for k in range(len(u)):
            _draw(q, u[k], tokens[k])
    return tokens


@kernel
def _draw(q, u, tokens):
    """`cumulative_draw` from each of the rows q[B, V], with u[B], into int64 tokens[B].

    Four rows are added up at once, since each addition waits for the one before in its row, and sums at the
    ends of blocks are kept, to search in."""
    (size, vocab_size), end = q.shape, len(q) - 1
    sums = np.empty((4, -(-vocab_size // BLOCK)))
    for b in range(0, size, 4):
        one, two, three, four = q[b], q[min(b + 1, end)], q[min(b + 2, end)], q[min(b + 3, end)]
        s, t, v, w = 0.0, 0.0, 0.0, 0.0
        for k in range(sums.shape[1]):
            for x in range(BLOCK * k, min(BLOCK * (k + 1), vocab_size)):
                s, t, v, w = s + one[x], t + two[x], v + three[x], w + four[x]
            sums[0, k], sums[1, k], sums[2, k], sums[3, k] = s, t, v, w
        for i in range(min(4, size - b)):
            goal, k = u[b + i] * sums[i, -1], 0
            for j in range(sums.shape[1]):
                k += sums[i, j] <= goal
            running, x = sums[i, k - 1] if k > 0 else 0.0, BLOCK * k
            while x < vocab_size and running + q[b + i, x] <= goal:
                running += q[b + i, x]
                x += 1
            tokens[b + i] = min(x, vocab_size - 1)


@kernel
def _draw_distinct(q, first, u, tokens):
    """Fill int64 tokens[first:, B] with siblings drawn from q[B, V] without the ones before them."""
    weights = np.empty(q.shape[1])
    for b in range(q.shape[0]):
        for k in range(first, tokens.shape[0]):
            rest(q[b], tokens[:k, b], weights)
            tokens[k, b] = cumulative_draw(weights, u[k, b])
