"""Mentored decoding: accept as many drafts as a given divergence from the target allows.

Given α in (0, 1], accept x with probability min(1, p(x)/(α·q(x))), else emit a token from (p/β - q)₊,
normalised, with β ≥ 1 such that its mass is that of what is rejected, Σ (p/β - q)₊ = Σ (q - p/α)₊; the bonus
comes from p. A token follows

    π = p/α where p/q < α,   p/β where p/q > β,   q between.

α is the smallest for which KL(p‖π) ≤ D, the `divergence`. D = 0 gives α = 1, the standard rule; where
KL(p‖q) ≤ D everything is accepted. If p > 0 on all tokens of q, no rule with KL(p‖π) ≤ D accepts more
(docs/proofs.md, with β). α comes from bisection in floating point, ending on the side where the divergence is
not exceeded, and is then taken as given.

Tran-Thien, mentored decoding (2023, notebook and proof in vivien000/mentored_decoding), where p is the draft
and q the target. The notebook bisects at most 10 times, to a tolerance of .2; we bisect 50 times.

Cost: a sort of the vocabulary a position from rows; as the standard rule for a fixed pair."""

from fractions import Fraction
from typing import Any

import numpy as np

from specsim.core._elementary import log
from specsim.core._kernels import inner_kernel, kernel
from specsim.core._types import Floats, Row
from specsim.core.distributions import capped_ratio
from specsim.rules._common import positions
from specsim.rules._common.sorting import stable_order
from specsim.rules._common.tokenwise import positive_part


def alpha_of(p: Row, q: Row, divergence: Any) -> Any:
    """α as the kernels find it, exactly; 0 where q itself is near enough to p."""
    rows = [np.array([float(weight) for weight in row]) for row in (p, q)]
    return 0 * p[0] + Fraction(float(solve(*rows, float(divergence))[0]))


def acceptance(p: Row, q: Row, x: int, divergence: Any) -> Any:
    alpha = alpha_of(p, q, divergence)
    return min(1, p[x] / (alpha * q[x])) if alpha else 1


def recovered(p: Row, q: Row, x: int, divergence: Any) -> list[Any]:
    alpha = alpha_of(p, q, divergence)
    rejected = sum(max(b - a / alpha, 0) for a, b in zip(p, q, strict=True)) if alpha else 0
    p_sum = q_sum = 0 * p[0]
    for y in sorted((y for y in range(len(p)) if p[y] > 0), key=lambda y: q[y] / p[y]):
        if p[y] * (rejected + q_sum) <= q[y] * p_sum:  # p/q ≤ β
            break
        p_sum, q_sum = p_sum + p[y], q_sum + q[y]
    share = (rejected + q_sum) / p_sum if p_sum else 0
    return positive_part([share * weight for weight in p], q, otherwise=p)


def declared(p: Row, q: Row | None, position: int, divergence: Any) -> list[Any]:
    """What a token follows: π above at drafted positions, p for the bonus. 1/β is the least number that
    completes min(q, p/α) to a pmf, over all prefixes of tokens by p/q."""
    alpha = alpha_of(p, q, divergence) if q is not None else 0
    if q is None or alpha == 0:
        return list(p if q is None else q)
    accepted = [min(b, a / alpha) for a, b in zip(p, q, strict=True)]
    shares, left, p_sum = [], sum(accepted), 0
    for y in sorted((y for y in range(len(p)) if p[y] > 0), key=lambda y: q[y] / p[y]):
        left, p_sum = left - accepted[y], p_sum + p[y]
        shares.append((1 - left) / p_sum)
    share = min(shares)
    return [max(kept, share * a) for kept, a in zip(accepted, p, strict=True)]


@kernel
def sorted_sums(p, q):
    """By rising q/p over p > 0: ratios; prefix sums of p, q and p·log(p/q), [·, 3]; suffix sums of p, q.

    Tokens with q = 0, which come first, add nothing to the third. The sums of p and q from the end are not
    differences of the others, which would leave no digit of an improbable tail."""
    possible, unsorted, count = np.empty(p.size, np.int64), np.empty(p.size), 0
    for x in range(p.size):
        if p[x] > 0.0:
            possible[count], unsorted[count] = x, q[x] / p[x]
            count += 1
    order = stable_order(unsorted[:count])
    ratio, sums = np.empty(count), np.zeros((count + 1, 3))
    for k in range(count):
        x = possible[order[k]]
        ratio[k] = unsorted[order[k]]
        for column in range(3):
            sums[k + 1, column] = sums[k, column]
        sums[k + 1, 0] += p[x]
        sums[k + 1, 1] += q[x]
        if q[x] > 0.0:
            sums[k + 1, 2] += p[x] * (log(p[x]) - log(q[x]))
    beyond = np.zeros((count + 1, 2))
    for k in range(count - 1, -1, -1):
        x = possible[order[k]]
        beyond[k, 0] = beyond[k + 1, 0] + p[x]
        beyond[k, 1] = beyond[k + 1, 1] + q[x]
    return ratio, sums, beyond


@inner_kernel
def zones(ratio, sums, beyond, stray, alpha):
    """How many tokens the residual covers, how many pass for certain, and the mass of what is rejected;
    `stray` is what q puts on tokens with p = 0."""
    certain = np.searchsorted(ratio, 1.0 / alpha, side="right")
    rejected = stray + max(beyond[certain, 1] - beyond[certain, 0] / alpha, 0.0)
    low, high = 0, certain if rejected > 0.0 else 0
    while low < high:
        middle = (low + high) // 2
        if rejected + sums[middle, 1] > ratio[middle] * sums[middle, 0]:
            low = middle + 1
        else:
            high = middle
    return low, certain, rejected


@inner_kernel
def divergence_at(ratio, sums, beyond, stray, alpha):
    """KL(p‖π)."""
    covered, certain, rejected = zones(ratio, sums, beyond, stray, alpha)
    if covered == 0 and ratio[0] == 0.0:
        return np.inf
    total = sums[certain, 2] - sums[covered, 2] + beyond[certain, 0] * log(alpha)
    if covered > 0:
        total += sums[covered, 0] * log(sums[covered, 0] / (rejected + sums[covered, 1]))
    return total


@kernel
def solve(p, q, divergence):
    """α and 1/β; 0 and 0 where nothing is rejected because KL(p‖q) ≤ divergence."""
    ratio, sums, beyond = sorted_sums(p, q)
    stray = 0.0
    for x in range(p.size):
        if p[x] == 0.0:
            stray += q[x]
    low, high = 0.0, 1.0
    if divergence > 0.0:
        if ratio[0] > 0.0 and sums[-1, 2] <= divergence:
            return 0.0, 0.0
        for _ in range(50):
            middle = (low + high) / 2.0
            if divergence_at(ratio, sums, beyond, stray, middle) <= divergence:
                high = middle
            else:
                low = middle
    covered, _, rejected = zones(ratio, sums, beyond, stray, high)
    return high, (rejected + sums[covered, 1]) / sums[covered, 0] if covered > 0 else 0.0


@kernel
def accept(p, q, x, u, values):
    if u * q[x] < p[x]:  # as α ≤ 1, without it
        return True
    alpha, _ = solve(p, q, values[0])
    return u * (alpha * q[x]) < p[x] or alpha == 0.0


@kernel
def recover(p, q, x, values, weights):
    _, share = solve(p, q, values[0])
    for y in range(weights.size):
        weights[y] = max(share * p[y] - q[y], 0.0)


def shares(p: Floats, q: Floats, divergence: float) -> tuple[Floats, Floats, Floats]:
    alpha, share = solve(p, q, divergence)
    if alpha == 0.0:
        return np.ones(q.size), p, p
    return capped_ratio(p, alpha * q), np.maximum(share * p - q, 0.0), p


RULE = positions.rule("mentored", (acceptance, recovered), (accept, recover), shares, declared=declared)
