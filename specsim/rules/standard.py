"""Standard speculative sampling: accept x with probability min(1, p(x)/q(x)), else sample the residual.

For a chain of drafted tokens x_1 … x_γ with target rows p_1 … p_{γ+1} and draft rows q_1 … q_γ: go through
them in order, accept x_i with probability min(1, p_i(x_i)/q_i(x_i)); at the first rejection emit a *recovered*
token from the residual (p_i - q_i)₊, normalised; if all are accepted emit a *bonus* token from p_{γ+1}.

Lossless for a chain whose every token was sampled from the q handed over: a token comes out of position i with
probability min(p, q) by acceptance and (1 - β)·(p - q)₊/(1 - β) by recovery, which add up to p, where
β = Σ min(p, q) is the probability of acceptance.

Leviathan, Kalman & Matias, "Fast inference from transformers via speculative decoding", arXiv 2211.17192:
Algorithm 1, Theorem 3.5 (β), Appendix A.1 (losslessness). The same rule, with the letters swapped, is
Algorithm 2 of Chen et al., "Accelerating large language model decoding with speculative sampling",
arXiv 2302.01318. We depart from the paper where it writes r > p/q for a rejection, r uniform: we accept if
u·q < p, u in [0, 1), strictly, so that a token with p = 0 can never pass.

An all-zero residual cannot follow a rejection, except by rounding: a rejection needs q(x) > p(x), so rows of
equal sums leave p above q elsewhere. Where rounding does leave nothing, the recovered token comes from p.

Cost: γ + 1 uniforms a step; O(V) for the recovered token from rows, O(1) for a fixed pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from specsim.distributions import Floats, alias_draws, alias_lookup, alias_table, cumulative_draw, inverse_cdf
from specsim.drafts import require_chain
from specsim.jit import kernel
from specsim.rules import FixedPair, Rule, Test, Walk

NO_RESIDUAL = "p, the residual being all zero"

# --- law -------------------------------------------------------------------------------------------------


def law(
    parents: Sequence[int], tokens: Sequence[int], p: Sequence[Sequence[Any]], q: Sequence[Sequence[Any]]
) -> tuple[list[Any], list[list[Any]]]:
    """Where a step stops on the drafted `tokens`, and the pmf of the token that follows.

    `p` holds γ+1 rows, `q` γ. Returns (stop, follow): stop[j] is the probability that exactly j tokens are
    accepted, follow[j] the pmf of the token emitted after them.

    >>> from fractions import Fraction as F
    >>> stop, follow = law((0,), (1,), [[F(3, 4), F(1, 4)], [F(1), F(0)]], [[F(1, 2), F(1, 2)]])
    >>> stop, follow[0]
    ([Fraction(1, 2), Fraction(1, 2)], [Fraction(1, 1), Fraction(0, 1)])
    """
    require_chain(parents, "standard")
    stop, follow = [], []
    reached: Any = 1
    for x, p_row, q_row in zip(tokens, p, q, strict=False):
        accept = min(1, p_row[x] / q_row[x])
        stop.append(reached * (1 - accept))
        follow.append(_residual(p_row, q_row))
        reached = reached * accept
    return [*stop, reached], [*follow, list(p[len(tokens)])]


def _residual(p_row: Sequence[Any], q_row: Sequence[Any]) -> list[Any]:
    excess = [max(p - q, 0 * p) for p, q in zip(p_row, q_row, strict=True)]
    mass = sum(excess)
    return [weight / mass for weight in excess] if mass > 0 else list(p_row)


# --- rows ------------------------------------------------------------------------------------------------


@kernel
def verify_rows(draft_tokens, p, q, uniforms, tokens, accepted):  # type: ignore[no-untyped-def]
    """The row kernel, see `specsim.rules.Rule`: uniforms[i] tests position i, uniforms[γ] draws the last token."""
    gamma = draft_tokens.shape[1]
    weights = np.empty(p.shape[2])
    for b in range(draft_tokens.shape[0]):
        n = 0
        while n < gamma:
            x = draft_tokens[b, n]
            if not uniforms[n, b] * q[b, n, x] < p[b, n, x]:
                break
            tokens[n, b] = x
            n += 1
        mass = 0.0
        if n < gamma:
            for x in range(weights.size):
                weights[x] = max(p[b, n, x] - q[b, n, x], 0.0)
                mass += weights[x]
        if mass == 0.0:
            weights[:] = p[b, n]
        tokens[n, b] = cumulative_draw(weights, uniforms[gamma, b])
        tokens[n + 1 :, b] = -1
        accepted[b] = n


def walk(draft_tokens: Sequence[int], p: Any, q: Any, uniforms: Sequence[float]) -> Walk:
    """One step of `verify_rows` in plain Python: draft_tokens[γ], p[γ+1][V], q[γ][V], uniforms[γ+1]."""
    *accept_uniforms, last = uniforms
    tests: list[Test] = []
    for i, (x, u) in enumerate(zip(draft_tokens, accept_uniforms, strict=True)):
        passed = bool(u * q[i][x] < p[i][x])
        tests.append(Test(i, int(x), float(p[i][x]), float(q[i][x]), float(u), passed))
        if not passed:
            excess = [max(a - b, 0.0) for a, b in zip(p[i], q[i], strict=True)]
            if any(excess):
                return Walk(tuple(tests), "residual", last, inverse_cdf(excess, last))
            return Walk(tuple(tests), NO_RESIDUAL, last, inverse_cdf(p[i], last))
    return Walk(tuple(tests), "bonus", last, inverse_cdf(p[len(tests)], last))


# --- a fixed pair ----------------------------------------------------------------------------------------


def fixed_pair_tables(p: Floats, q: Floats) -> tuple[np.ndarray, ...]:
    """Alias tables of the draft, and of residual and bonus one after the other; the ratio min(1, p/q)."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio = np.where(q > 0, np.minimum(1.0, p / q), 0.0)
    excess = np.maximum(p - q, 0.0)
    residual = alias_table(excess if excess.any() else p)
    return alias_table(q), np.concatenate([residual, alias_table(p)]), ratio


@kernel
def verify_fixed_pair(draft, last, ratio, draft_uniforms, verify_uniforms, tokens, accepted):  # type: ignore[no-untyped-def]
    """The fixed-pair kernel, see `specsim.rules.FixedPair`.

    Position by position over all steps, in short loops without a branch: a table look-up that misses the cache
    then overlaps with the next steps', and nothing is mispredicted.
    """
    vocab_size = ratio.size
    gamma, steps = tokens.shape[0] - 1, tokens.shape[1]
    start = np.zeros(steps, np.int64)
    drawn = np.empty(steps, np.int64)
    alive = np.ones(steps, np.int64)
    accepted[:] = 0
    for i in range(gamma):
        alias_draws(draft, start, vocab_size, draft_uniforms[i], drawn)
        for s in range(steps):
            alive[s] &= np.int64(verify_uniforms[i, s] < ratio[drawn[s]])
            accepted[s] += alive[s]
            tokens[i, s] = (drawn[s] + 1) * alive[s] - 1
    for s in range(steps):
        start[s] = vocab_size * alive[s]  # the bonus' table stands behind the residual's
    alias_draws(last, start, vocab_size, verify_uniforms[gamma], drawn)
    tokens[gamma, :] = -1
    for s in range(steps):
        tokens[accepted[s], s] = drawn[s]


def walk_fixed_pair(
    p: Floats, q: Floats, draft_uniforms: Sequence[float], verify_uniforms: Sequence[float]
) -> tuple[list[int], Walk]:
    """One step of `verify_fixed_pair` in plain Python: draft_uniforms[γ], verify_uniforms[γ+1]."""
    draft, last, ratio = fixed_pair_tables(p, q)
    residual, bonus = last[: p.size], last[p.size :]
    *accept_uniforms, final = verify_uniforms
    drafted = [alias_lookup(draft, u) for u in draft_uniforms]
    tests: list[Test] = []
    for i, (x, u) in enumerate(zip(drafted, accept_uniforms, strict=True)):
        tests.append(Test(i, x, float(p[x]), float(q[x]), float(u), bool(u < ratio[x])))
        if not tests[-1].accepted:
            source = "residual" if (p > q).any() else NO_RESIDUAL
            return drafted, Walk(tuple(tests), source, final, alias_lookup(residual, final))
    return drafted, Walk(tuple(tests), "bonus", final, alias_lookup(bonus, final))


# --- registry --------------------------------------------------------------------------------------------

RULE = Rule(
    name="standard",
    citation="Leviathan, Kalman & Matias 2023, arXiv 2211.17192, Algorithm 1",
    lossless_for=("sampled chain",),
    law=law,
    rows=verify_rows,
    walk=walk,
    uniforms=lambda gamma: gamma + 1,
    fixed_pair=FixedPair(fixed_pair_tables, verify_fixed_pair, walk_fixed_pair),
)
