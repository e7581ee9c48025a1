"""Hierarchical speculative decoding, capped: compare joint probabilities, from the whole draft backwards.

Let J_i = Π_{j≤i} p_j(x_j)/q_j(x_j), J_0 = 1, and capped R_i = J_i / max_{j≤i} J_j. Accept the whole draft
with probability R_γ. Otherwise step back: with x_1 … x_i kept, i = γ-1, …, compare the branches below,
R_i·p_{i+1} for the target and q_{i+1} for the draft; stop there with probability

    Σ(R_i·p - q)₊ / max(Σ(R_i·p - q)₊, Σ(q - R_i·p)₊)

and emit a token from (R_i·p - q)₊, normalised; after the last step back, i = 0, surely.

Lossless with the cap, for a chain whose every token was sampled from the q handed over. A step then has
exactly the distribution of block verification's (in the tests): R_i is its b_i, and Σ(q - R·p)₊ = Σ(R·p - q)₊
+ 1 - R. The published code leaves the cap out of the last ratio and so accepts more, at the price of a biased
step; see `hierarchical_uncapped`.

Zhou et al., "Hierarchical speculative decoding", arXiv 2601.05724, and its public code.

Cost: γ + 1 uniforms a step; O(γ·V) from rows, O(γ + log V) a step for a fixed pair."""

from collections.abc import Sequence
from itertools import accumulate
from operator import mul
from typing import Any

import numpy as np

from specsim.core._kernels import Kernel, inner_kernel, kernel
from specsim.core._types import Row, Rows, StepLaw
from specsim.core.distributions import copy_row, cumulative_draw
from specsim.rules._chain.block import survival, tables, verify_fixed_pair
from specsim.rules._common import tokenwise
from specsim.rules._common.base import FixedPair, end_step, named, with_part


def law(parents: Sequence[int], tokens: Sequence[int], p: Rows, q: Rows) -> StepLaw:
    """stop[i]: the probability of keeping exactly i tokens; follow[i] the pmf of the token after them."""
    tokenwise.require_chain("hierarchical", parents)
    joint = joint_ratios(tokens, p, q)
    return backward_law([ratio / max(joint[: i + 1]) for i, ratio in enumerate(joint)], p, q)


def joint_ratios(tokens: Sequence[int], p: Rows, q: Rows) -> list[Any]:
    """J_0 … J_γ."""
    ratios = (a[x] / b[x] for x, a, b in zip(tokens, p, q, strict=False))
    return list(accumulate(ratios, mul, initial=1 + 0 * p[0][0]))


def backward_law(ratios: Row, p: Rows, q: Rows) -> StepLaw:
    """The law of a step, given the ratios R_0 … R_γ."""
    gamma = len(ratios) - 1
    stop, follow = [ratios[gamma]], [list(p[gamma])]
    left = 1 - ratios[gamma]
    for ratio, p_row, q_row in list(zip(ratios, p, q, strict=False))[gamma - 1 :: -1]:
        target = [ratio * weight for weight in p_row]
        more = sum(max(a - b, 0) for a, b in zip(target, q_row, strict=True))
        less = sum(max(b - a, 0) for a, b in zip(target, q_row, strict=True))
        chance = more / max(more, less) if (more or less) and len(stop) < gamma else 1
        stop.append(left * chance)
        follow.append(tokenwise.positive_part(target, q_row, otherwise=p_row))
        left *= 1 - chance
    return stop[::-1], follow[::-1]


@inner_kernel
def differences(ratio, p, q, weights):
    """Fill weights[V] with (R·p - q)₊; give their sum, and that of (q - R·p)₊."""
    more, less = 0.0, 0.0
    for y in range(weights.size):
        gap = ratio * p[y] - q[y]
        weights[y] = max(gap, 0.0)
        more += max(gap, 0.0)
        less += max(-gap, 0.0)
    return more, less


@inner_kernel
def capped(ratio):
    """Dividing by the largest so far at once keeps the product finite."""
    return ratio / max(1.0, ratio) if ratio < np.inf else 1.0


def rows(cap: Kernel) -> Kernel:
    """The row kernel: uniforms[i-1] decides on i tokens, uniforms[γ] draws the last token."""
    return with_part(verify_rows, cap, "float64(float64)")


@kernel
def verify_rows(cap, parents, draft_tokens, p, q, uniforms, values, tokens, accepted):
    gamma = draft_tokens.shape[1]
    weights, ratios = np.empty(p.shape[2]), np.empty(gamma + 1)
    for s in range(draft_tokens.shape[0]):
        ratios[0] = 1.0
        for i in range(gamma):
            x = draft_tokens[s, i]
            ratios[i + 1] = cap(ratios[i] * p[s, i, x] / q[s, i, x]) if ratios[i] > 0.0 else 0.0
        n = gamma
        copy_row(p[s, n], weights)
        if not uniforms[n - 1, s] < ratios[n]:
            while n > 0:
                n -= 1
                more, less = differences(ratios[n], p[s, n], q[s, n], weights)
                if n == 0 or uniforms[n - 1, s] * max(more, less) < more or max(more, less) == 0.0:
                    if more == 0.0:
                        copy_row(p[s, n], weights)
                    break
        for i in range(n):
            tokens[i, s] = draft_tokens[s, i]
        end_step(tokens, accepted, s, n, cumulative_draw(weights, uniforms[gamma, s]))


# The fixed-pair kernel is block verification's: with the cap the two rules are one.

RULE = named("hierarchical", law, rows(capped), FixedPair(tables, verify_fixed_pair), survival=survival)
