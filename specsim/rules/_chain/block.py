"""Block verification: decide on the drafted tokens jointly, which accepts more than a test of each.

With b_0 = 1 and b_i = min(1, b_{i-1}·p_i(x_i)/q_i(x_i)) let, for i < γ,

    A_i = Σ_y (b_i·p_{i+1}(y) - q_{i+1}(y))₊,   h_i = A_i/(A_i + 1 - b_i),   and h_γ = b_γ  (0/0 is 1).

Draw η_i uniformly for i = 1 … γ and let τ be the largest i with η_i < h_i, or 0: tests do not stop at the
first failure. Emit x_1 … x_τ and a token from (b_τ·p - q)₊, normalised, or from p after the whole block.

Lossless for a chain whose every token was sampled from the q handed over: P(τ ≥ i | x_1 … x_i) = b_i. Hence
E[τ] = Σ_i E_q[b_i], at least what token-wise verification accepts, and at most Σ_i Σ min(p(x_1 … x_i), q(x_1
… x_i)). This bound is often quoted as the value, which is wrong in general (V = 2, γ = 2: .54 < .66 < .78,
see the tests). At temperature 0 it is the standard rule.

Sun et al., "Block verification accelerates speculative decoding", arXiv 2403.10444, Algorithm 2.

Cost: γ + 1 uniforms a step; O(γ·V) from rows, O(γ + log V) a step for a fixed pair, since h is evaluated from
the end."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from specsim.core._kernels import inner_kernel, kernel
from specsim.core._types import Floats, Row, Rows, StepLaw
from specsim.core.distributions import alias_draws, alias_table, capped_ratio, copy_row, cumulative_draw
from specsim.models import Tree
from specsim.rules._common import tokenwise
from specsim.rules._common.base import FixedPair, end_step, named
from specsim.rules._common.fixed_pairs import (
    PairTables,
    alias_draw,
    build_tables,
    draw_residual,
    residual_mass,
)


def law(parents: Sequence[int], tokens: Sequence[int], p: Rows, q: Rows) -> StepLaw:
    """stop[i] = P(τ = i), follow[i] the pmf of the token after x_1 … x_i."""
    tokenwise.require_chain("block", parents)
    return law_of_scales(*scales_and_cuts(tokens, p, q), p, q)


def law_of_scales(b: Sequence[Any], h: Sequence[Any], p: Rows, q: Rows) -> StepLaw:
    """The law of a step with these b_0 … b_γ and h_0 … h_γ."""
    stop, passed_over = [], 1 + 0 * b[0]
    for chance in reversed(h):
        stop.append(passed_over * chance)
        passed_over *= 1 - chance
    return stop[::-1], next_tokens(b, p, q)


def scales_and_cuts(tokens: Sequence[int], p: Rows, q: Rows) -> tuple[list[Any], list[Any]]:
    """b_0 … b_γ and h_0 … h_γ."""
    b = [1 + 0 * p[0][0]]
    for x, p_row, q_row in zip(tokens, p, q, strict=False):
        b.append(min(1, b[-1] * p_row[x] / q_row[x]))
    return b, cuts(b, p, q)


def cuts(b: Sequence[Any], p: Rows, q: Rows) -> list[Any]:
    """h_0 … h_γ."""
    return [keep(p_row, q_row, scale) for scale, p_row, q_row in zip(b, p, q, strict=False)] + [b[-1]]


def next_tokens(b: Sequence[Any], p: Rows, q: Rows) -> list[list[Any]]:
    """The pmf after x_1 … x_i: (b_i·p - q)₊, normalised, or p if that is 0; p after the whole block."""
    residuals = [residual(p_row, q_row, scale) for scale, p_row, q_row in zip(b, p, q, strict=False)]
    return [*residuals, list(p[len(b) - 1])]


@tokenwise.kept_by_rows
def residual(p: Row, q: Row, b: Any) -> list[Any]:
    """(b·p - q)₊, normalised."""
    return tokenwise.positive_part([b * y for y in p], q, otherwise=p)


@tokenwise.kept_by_rows
def keep(p: Row, q: Row, b: Any) -> Any:
    """h, the probability that the block is cut here, given that it is not cut later."""
    left = sum(max(b * y - z, 0) for y, z in zip(p, q, strict=True))
    return left / (left + 1 - b) if left + 1 - b else 1


def survival(p: Floats, q: Floats) -> Floats:
    """b_1 … b_γ, each rising with every p and falling with every q, as each step from b to the next does."""
    b = np.ones_like(p)
    for i in range(p.shape[-1]):
        b[..., i] = capped_ratio((b[..., i - 1] if i else 1) * p[..., i], q[..., i])
    return b


@inner_kernel
def scales(draft_tokens, p, q, b):
    """Fill b[γ+1]."""
    b[0] = 1.0
    for i in range(draft_tokens.size):
        x = draft_tokens[i]
        b[i + 1] = min(1.0, b[i] * p[i, x] / q[i, x]) if b[i] > 0.0 else 0.0


@inner_kernel
def excess(b, p, q, weights):
    """Fill weights[V] with (b·p - q)₊, and give their sum."""
    mass = 0.0
    for y in range(weights.size):
        weights[y] = max(b * p[y] - q[y], 0.0)
        mass += weights[y]
    return mass


@kernel
def verify_rows(parents, draft_tokens, p, q, uniforms, values, tokens, accepted):
    """The row kernel: uniforms[i-1] is η_i, uniforms[γ] draws the last token."""
    gamma = draft_tokens.shape[1]
    weights = np.empty(p.shape[2])
    b = np.empty(gamma + 1)
    for s in range(draft_tokens.shape[0]):
        scales(draft_tokens[s], p[s], q[s], b)
        n, mass = gamma, 0.0
        if not uniforms[gamma - 1, s] < b[gamma]:
            for n in range(gamma - 1, -1, -1):
                mass = excess(b[n], p[s, n], q[s, n], weights)
                if n == 0 or uniforms[n - 1, s] * (mass + 1.0 - b[n]) < mass or b[n] == 1.0:
                    break
        if mass == 0.0:
            copy_row(p[s, n], weights)
        for i in range(n):
            tokens[i, s] = draft_tokens[s, i]
        end_step(tokens, accepted, s, n, cumulative_draw(weights, uniforms[gamma, s]))


def tables(p: Floats, q: Floats, tree: Tree) -> tuple[PairTables, np.ndarray, Floats]:
    """The pair, the draft's alias table, and p/q."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio = np.where(q > 0, p / q, 0.0)
    return build_tables(p, q), alias_table(q), ratio


@kernel
def verify_fixed_pair(pair, draft, ratio, draft_uniforms, verify_uniforms, tokens, accepted):
    gamma, steps = tokens.shape[0] - 1, tokens.shape[1]
    most = residual_mass(pair, 1.0, 1.0)
    b, drawn = np.ones((gamma + 1, steps)), np.empty(steps, np.int32)
    for i in range(gamma):
        alias_draws(draft, draft_uniforms[i], drawn)
        for s in range(steps):
            tokens[i, s] = drawn[s]
            scaled = b[i, s] * ratio[drawn[s]]
            b[i + 1, s] = min(1.0, scaled) if b[i, s] > 0.0 else 0.0
    for s in range(steps):
        n = gamma
        if not verify_uniforms[gamma - 1, s] < b[gamma, s]:
            for n in range(gamma - 1, 0, -1):
                if b[n, s] == 1.0:
                    break
                # A ≤ b·Σ(p - q)₊, which spares most searches
                eta, scale = verify_uniforms[n - 1, s], b[n, s]
                if eta * (1.0 - scale) < scale * most:
                    mass = residual_mass(pair, scale, 1.0)
                    if eta * (mass + 1.0 - scale) < mass:
                        break
            else:
                n = 0
        u = verify_uniforms[gamma, s]
        last = alias_draw(pair.p_alias, u) if n == gamma else draw_residual(pair, b[n, s], 1.0, u)
        end_step(tokens, accepted, s, n, last)


RULE = named("block", law, verify_rows, FixedPair(tables, verify_fixed_pair), survival=survival)
