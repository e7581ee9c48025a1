"""Gumbel coupling: draft and target choose their tokens with the same noise; equal tokens are accepted.

With independent exponentials E_x, one for each token and fresh at every position, the draft takes argmin
E_x/q(x) and the target argmin E_x/p(x). The target's token is emitted in any case, so the output is a sample
of p whatever the draft does, and a different draft model does not even change it, only the speed. With r =
q/p the draft's token x is accepted with probability 1/(1 + Λ(r_x)) where Λ(s) = Σ_y (s·p(y) - q(y))₊.

Here the verifier is handed a drafted token and not the noise, so it samples the noise conditional on that
token. Hence the rule is lossless for a chain whose every token was sampled from the q handed over, by
whatever method, and drafts and tokens are distributed jointly as with the shared noise (docs/proofs.md).

Daliri, Musco & Suresh, "Coupling without communication and drafter-invariant speculative decoding", arXiv
2408.07978. From rows, e = -log(1 - u), and the lowest token wins a tie.

Cost: from rows V uniforms a position and O(V); for a fixed pair γ + 1 uniforms a step and O(log V): the
accept test's uniform u says how much noise there was, Λ = 1/u - 1, and so which tokens were in the race."""

from itertools import pairwise
from typing import Any

import numpy as np

from specsim.core._elementary import log
from specsim.core._kernels import inner_kernel, kernel
from specsim.core._types import Floats, Row
from specsim.core.distributions import cumulative_draw
from specsim.models._drafts.dynamic import Draft
from specsim.rules._common import tokenwise
from specsim.rules._common.base import end_step, named
from specsim.rules._common.fixed_pairs import PairTables, build_tables, draw_sorted


def uniforms(tree: Draft, vocab_size: int) -> int:
    """One for each token at each drafted position, one for the bonus."""
    return tree.size * vocab_size + 1


def race(p: Row, q: Row, s: Any) -> Any:
    """1 + Λ(s)."""
    return 1 + sum(max(s * a - b, 0) for a, b in zip(p, q, strict=True))


def acceptance(p: Row, q: Row, x: int) -> Any:
    return 1 / race(p, q, q[x] / p[x]) if p[x] else 0 * p[x]


def recovered(p: Row, q: Row, x: int) -> list[Any]:
    """The target's token given that it is not the drafted x; p where it always is.

    1 + Λ is linear between the ratios q/p, and ∫ ds/(c + d·s)² = (high - low)/((c + d·low)(c + d·high))."""
    ratios = sorted({b / a for a, b in zip(p, q, strict=True) if a})
    if p[x]:
        ratios, below = [ratio for ratio in ratios if ratio <= q[x] / p[x]], 0 * p[x]
    else:  # the race never ends: from the last ratio on Λ rises with slope 1
        below = 1 / race(p, q, ratios[-1])
    integrals = {ratios[-1]: below}
    for low, high in reversed(list(pairwise(ratios))):
        below += (high - low) / (race(p, q, low) * race(p, q, high))
        integrals[low] = below
    weights = [a * integrals.get(b / a, 0) if a else a for a, b in zip(p, q, strict=True)]
    return tokenwise.normalise(weights) if any(weights) else list(p)


@inner_kernel
def target_token(p, q, x, uniforms):
    """The token with the least E/p, and that number, given that x has the least E/q, whose uniform gives m;
    uniforms[V] are the noise."""
    m = -log(1.0 - uniforms[x])
    best, least = x, np.inf
    for y in range(p.size):
        if p[y] > 0.0:
            noise = m * q[y] if y == x else m * q[y] - log(1.0 - uniforms[y])
            if noise / p[y] < least:
                best, least = y, noise / p[y]
    return best, least


@kernel
def verify_rows(parents, draft_tokens, p, q, uniforms, values, tokens, accepted):
    """The row kernel: uniforms[i·V : (i+1)·V] are the noise at position i, the last draws the bonus."""
    gamma, size = draft_tokens.shape[1], p.shape[2]
    for b in range(draft_tokens.shape[0]):
        n, y = 0, -1
        while n < gamma:
            y, _ = target_token(p[b, n], q[b, n], draft_tokens[b, n], uniforms[n * size : (n + 1) * size, b])
            if y != draft_tokens[b, n]:
                break
            tokens[n, b] = y
            n += 1
        last = y if n < gamma else cumulative_draw(p[b, n], uniforms[gamma * size, b])
        end_step(tokens, accepted, b, n, last)


def race_table(pair: PairTables) -> Floats:
    """Λ at the sorted ratios."""
    start = np.searchsorted(pair.ratio, pair.ratio, side="left")  # ties share one Λ
    return np.maximum(pair.ratio * pair.p_sorted[start] - pair.q_sorted[start], 0.0)


def shares(p: Floats, q: Floats) -> tuple[Floats, Floats]:
    """The chance of accepting each token, and Λ at the sorted ratios."""
    pair = build_tables(p, q)
    race = race_table(pair)
    accept = np.zeros(p.size)
    accept[pair.order] = 1.0 / (1.0 + race)
    return accept, race


@inner_kernel
def draw(pair, race, x, tested, u):
    """Of the tokens whose race had begun, by rising q/p, one in proportion to p."""
    noise = 1.0 / tested - 1.0 if tested > 0.0 else np.inf
    return draw_sorted(pair, max(np.searchsorted(race, noise, side="right"), 1), u)


RULE = named(
    "gumbel",
    tokenwise.law("gumbel", acceptance, recovered),
    verify_rows,
    tokenwise.fixed_pair_by_token(shares, draw),
    uniforms=uniforms,
)
