"""K drafts of one token: the probability that one of them is accepted, by known verifiers and at best.

"Accepted" means that the emitted token, whose distribution is p, is one of the K drafted. Rows that are not
pmfs over one vocabulary, and arguments outside the ranges given here, raise ValueError or TypeError."""

import math

import numpy as np
from numpy.typing import ArrayLike

from specsim.core._types import Floats, check_between, check_choice, check_count, checked
from specsim.core.distributions import check_rows
from specsim.models._drafts.sampling import SAMPLING_METHODS

#: The most orders of K tokens of q that `without_replacement_acceptance` enumerates, 8!.
MAX_ORDERS = 40_320


@checked
def optimal_acceptance(p: ArrayLike, q: ArrayLike, drafts: int, draft_sampling: str = "sampled") -> float:
    """α* = 1 + min_H [p(H) - P(all drafts in H)] over sets H of tokens: no verifier accepts more often.

    This is the dual of an optimal transport problem: P(output ∈ drafts), maximised over couplings of the
    drafts with an output of distribution p. A minimiser is a prefix of the tokens sorted by p/q, so that V +
    1 sets are enough: O(V log V) for "sampled", where P(all drafts in H) = q(H)^K; O(V·K) steps on arrays of
    a few hundred numbers for "without replacement", accurate to 1e-12 (see `draws_inside`).
    "top" gives p(Top), "top and sample" `greedy_multi_draft_acceptance`. Sun et al., "SpecTr", arXiv
    2310.15141; Khisti et al., arXiv 2410.18234 (K = 2); Hu et al., "Towards optimal multi-draft speculative
    decoding", arXiv 2502.18779 (the dual).

    Parameters
    ----------
    p, q : array_like, shape [V]
        The rows of target and draft.
    drafts : int
        K ≥ 1 drafted tokens, and K ≤ V unless `draft_sampling` is "sampled".
    draft_sampling : str
        One of `specsim.models._drafts.sampling.SAMPLING_METHODS`.

    Returns
    -------
    float
        In [0, 1].

    Examples
    --------
    >>> p, q = [0.6, 0.3, 0.1], [0.1, 0.3, 0.6]
    >>> for sampling in "sampled", "without replacement", "top", "top and sample":
    ...     print(f"{optimal_acceptance(p, q, 2, sampling):.4f}")
    0.5900
    0.6929
    0.4000
    0.6500
    """
    check_choice("draft_sampling", draft_sampling, SAMPLING_METHODS)
    p_row, q_row, count = _given(p, q, drafts, distinct=draft_sampling != "sampled")
    if draft_sampling == "top":
        return _probability(p_row[np.argsort(-q_row, kind="stable")[:count]].sum())
    if draft_sampling == "top and sample":
        return greedy_multi_draft_acceptance(p_row, q_row, count)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio = np.where(q_row > 0, p_row / q_row, np.inf)
    order = np.lexsort((p_row, ratio, q_row == 0))
    target = np.append(0.0, np.cumsum(p_row[order]))
    if draft_sampling == "sampled":
        inside = np.append(0.0, np.cumsum(q_row[order])) ** count
    else:
        inside = draws_inside(q_row[order], count)
    return _probability(float(1.0 + (target - inside).min()))


def draws_inside(q: Floats, drafts: int) -> Floats:
    """The probability that `drafts` draws without replacement all fall among the first i tokens, i = 0 … V.

    `q` [V] sums to 1. An integral over exponential clocks, one for each token, by the trapezoidal rule in log
    t (docs/proofs.md). Where q has fewer than K tokens, all of these are drawn, and then others uniformly."""
    size, drawable = q.size, q > 0
    support = int(drawable.sum())
    if support < drafts:
        others = np.append(0, np.cumsum(~drawable))
        still = np.arange(drafts - support)
        fill = np.prod((others[:, None] - still).clip(min=0) / (size - support - still), axis=1)
        return np.where(np.append(0, np.cumsum(drawable)) == support, fill, 0.0)
    step = 1 / 8
    # the least rate while fewer than K have rung
    slowest = np.sort(q[drawable])[: support - drafts + 1].sum()
    time = np.exp(np.arange(math.log(1e-18), min(math.log(50.0) - math.log(slowest), 700.0), step))
    rung = np.zeros((drafts, time.size))  # P(k of the tokens so far have rung), k < K
    rung[0] = 1.0
    outside = np.append(np.cumsum(q[::-1])[::-1], 0.0)
    inside = np.empty(size + 1)
    for i in range(size + 1):
        rate = outside[i] * time
        inside[i] = 1.0 - step * (rung.sum(axis=0) @ (rate * np.exp(-rate)))
        if i < size and q[i] > 0:
            silent = np.exp(-q[i] * time)
            rung[1:] = rung[1:] * silent - rung[:-1] * np.expm1(-q[i] * time)
            rung[0] *= silent
    return inside


@checked
def naive_matching_acceptance(p: ArrayLike, q: ArrayLike, drafts: int) -> float:
    """Σ p(x)·(1 - (1 - q(x))^K): the probability that a sample of p is among K samples of q.

    Miao et al., "SpecInfer", arXiv 2305.09781, whose baseline it is.

    Parameters
    ----------
    p, q, drafts
        As for `optimal_acceptance`.

    Returns
    -------
    float
        In [0, 1].

    Examples
    --------
    >>> round(naive_matching_acceptance([0.5, 0.5], [0.5, 0.5], 2), 12)
    0.75
    """
    p_row, q_row, count = _given(p, q, drafts)
    return _probability(float(p_row @ (1.0 - (1.0 - q_row) ** count)))


@checked
def recursive_rejection_acceptance(p: ArrayLike, q: ArrayLike, drafts: int) -> float:
    """1 - Π_k TV(R_k, q) with R_1 = p and R_{k+1} ∝ (R_k - q)₊: SpecInfer's verifier of sampled drafts.

    Each round is the standard test against the residual of the rounds before. Miao et al., "SpecInfer", arXiv
    2305.09781, Algorithm 2.

    Parameters
    ----------
    p, q, drafts
        As for `optimal_acceptance`.

    Returns
    -------
    float
        In [0, 1].

    Examples
    --------
    >>> recursive_rejection_acceptance([1, 0], [0.5, 0.5], 2)
    0.75
    """
    residual, q_row, rounds = _given(p, q, drafts)
    rejected = 1.0
    for done in range(rounds):
        lacking = np.maximum(residual - q_row, 0.0)
        distance = lacking.sum()
        before, residual = residual, lacking / (distance or 1.0)
        if (residual == before).all():  # all rounds that are left are like this one
            rejected *= distance ** (rounds - done)
            break
        rejected *= distance
        if rejected == 0.0:
            break
    return _probability(1.0 - rejected)


@checked
def k_seq_rho(p: ArrayLike, q: ArrayLike, drafts: int) -> float:
    """ρ* in [1, K]: the least ρ with ρ·b ≥ 1 - (1 - b)^K, where b(ρ) = Σ min(q, p/ρ).

    K-SEQ (Sun et al., "SpecTr", arXiv 2310.15141) accepts the first of K sampled drafts with u ≤ p(x)/(ρ
    q(x)); a draft passes with probability b. Its output can have the distribution p iff ρ ≥ ρ*, and it
    accepts most often at ρ*. ρ·b - 1 + (1 - b)^K does not decrease with ρ, so that bisection finds ρ*, ending
    on the valid side. Disjoint rows have b = 0: there the limit of the condition is ρ ≥ K."""
    p_row, q_row, count = _given(p, q, drafts)

    def valid(rho: float) -> bool:
        b = _passing(p_row, q_row, rho)
        return rho >= count if b == 0 else rho * b >= _any_of(b, count)

    low, high = 1.0, float(count)
    if valid(low):
        return low
    while low < (middle := (low + high) / 2) < high:
        low, high = (low, middle) if valid(middle) else (middle, high)
    return high


@checked
def k_seq_acceptance(p: ArrayLike, q: ArrayLike, drafts: int, rho: float | None = None) -> float:
    """1 - (1 - b(ρ))^K, the acceptance of K-SEQ.

    At ρ* it is at least 1 - (1 - 1/K)^K > 1 - 1/e of `optimal_acceptance`. Sun et al., "SpecTr", arXiv
    2310.15141.

    Parameters
    ----------
    p, q, drafts
        As for `optimal_acceptance`.
    rho : float, optional
        In [1, K], by default ρ*. Below ρ* this is still what the rule accepts, but its output does not follow
        p.

    Returns
    -------
    float
        In [0, 1].

    Examples
    --------
    >>> round(k_seq_acceptance([1, 0], [0.5, 0.5], 2), 12)
    0.75
    """
    p_row, q_row, count = _given(p, q, drafts)
    chosen = k_seq_rho(p_row, q_row, count) if rho is None else float(rho)
    check_between("rho", chosen, 1, count, "number from ρ* to K")
    return _probability(_any_of(_passing(p_row, q_row, chosen), count))


@checked
def without_replacement_acceptance(p: ArrayLike, q: ArrayLike, drafts: int) -> float:
    """Enumerate the acceptance of recursive rejection of drafts without replacement (Sequoia, RSD).

    R = p and D = q at first; s drawn from D is accepted with probability min(1, R(s)/D(s)), else R becomes (R
    - D)₊ and D loses s, both renormalised. Once D is empty nothing more is tried; Sequoia's code then takes a
    uniform D. If all tokens of p are tokens of q, and q has at most K tokens, one is accepted for certain
    (Sequoia's cover property). Chen et al., "Sequoia", arXiv 2402.12374; Jeon et al., arXiv 2402.14160.

    Parameters
    ----------
    p, q, drafts
        As for `optimal_acceptance`, with K ≤ V.

    Returns
    -------
    float
        In [0, 1].

    Raises
    ------
    ValueError, TypeError
        For rows that are not pmfs over one vocabulary, a K out of range, or more than `MAX_ORDERS` orders of
        K tokens of q.

    Examples
    --------
    >>> without_replacement_acceptance([1, 0], [0.5, 0.5], 2)
    1.0
    """
    p_row, q_row, count = _given(p, q, drafts, distinct=True)
    support = int((q_row > 0).sum())
    orders = math.perm(support, min(count, support))
    if orders > MAX_ORDERS:
        raise ValueError(f"drafts: {orders} orders of sampling are more than {MAX_ORDERS}; give fewer drafts")

    def rejected(residual: Floats, weights: Floats, left: int) -> float:
        mass = weights.sum()
        if left == 0 or mass == 0.0:
            return 1.0
        draft = weights / mass
        lacking = np.maximum(residual - draft, 0.0)
        after = lacking.sum()
        if after == 0.0:
            return 0.0
        turned_down = np.maximum(draft - residual, 0.0)
        total = 0
        for s in np.flatnonzero(turned_down):
            others = np.where(np.arange(draft.size) == s, 0.0, weights)
            total += turned_down[s] * rejected(lacking / after, others, left - 1)
        return float(total)

    return _probability(1.0 - rejected(p_row, q_row, count))


@checked
def greedy_multi_draft_acceptance(p: ArrayLike, q: ArrayLike, drafts: int) -> float:
    """p(Top) + Σ_{x ∉ Top} min(p(x), q'(x)): the K - 1 best tokens of q, and a sample of q' on the others.

    A standard test of the sampled token against the target without the mass of Top reaches
    `optimal_acceptance`. Hu et al., "Towards optimal multi-draft speculative decoding", arXiv 2502.18779.

    Parameters
    ----------
    p, q, drafts
        As for `optimal_acceptance`, with K ≤ V.

    Returns
    -------
    float
        In [0, 1].

    Examples
    --------
    >>> greedy_multi_draft_acceptance([0.5, 0.25, 0.25], [0.5, 0.5, 0.0], 2)
    0.75
    """
    p_row, q_row, count = _given(p, q, drafts, distinct=True)
    ranked = np.argsort(-q_row, kind="stable")
    top, others = ranked[: count - 1], ranked[count - 1 :]
    weights = q_row[others] if q_row[others].any() else np.ones(others.size)
    return _probability(p_row[top].sum() + np.minimum(p_row[others], weights / weights.sum()).sum())


@checked
def gumbel_agreement(p: ArrayLike, q: ArrayLike) -> float:
    """Σ_x 1 / Σ_y max(p(y)/p(x), q(y)/q(x)) over x with p, q > 0: how often argmin E/p and argmin E/q agree.

    E are exponential variables, one a token, shared by draft and target: both choose x iff E_x is below E_y ·
    min(p(x)/p(y), q(x)/q(y)) for every other y. The result is between (1 - TV)/(1 + TV) and 1 - TV. With
    tokens sorted by p/q the inner sum is a tail of p and a head of q, hence O(V log V). Daliri, Musco &
    Suresh, arXiv 2408.07978.

    Parameters
    ----------
    p, q : array_like, shape [V]
        The rows of target and draft.

    Returns
    -------
    float
        In [0, 1].

    Examples
    --------
    >>> round(gumbel_agreement([0.5, 0.5], [0.75, 0.25]), 12)
    0.75
    """
    p_row, q_row = _pair(p, q)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        order = np.lexsort((q_row == 0, p_row / q_row))
        p_row, q_row = p_row[order], q_row[order]
        from_here = np.cumsum(p_row[::-1])[::-1]
        before = np.append(0.0, np.cumsum(q_row)[:-1])
        both = (p_row > 0) & (q_row > 0)
        return _probability((1.0 / (from_here / p_row + before / q_row)[both]).sum())


def _pair(p: ArrayLike, q: ArrayLike) -> tuple[Floats, Floats]:
    p_row, q_row = check_rows(p, "p"), check_rows(q, "q")
    if p_row.ndim != 1 or p_row.shape != q_row.shape:
        raise ValueError(f"p, q: shapes {p_row.shape} and {q_row.shape}; give two rows over one vocabulary")
    return p_row, q_row


def _given(p: ArrayLike, q: ArrayLike, drafts: int, distinct: bool = False) -> tuple[Floats, Floats, int]:
    """The checked arguments of a function of both rows and of `drafts` tokens."""
    p_row, q_row = _pair(p, q)
    if (count := check_count("drafts", drafts)) > q_row.size and distinct:
        raise ValueError(f"drafts: {drafts} distinct tokens cannot be drawn from {q_row.size}; give fewer")
    return p_row, q_row, count


def _probability(value: float) -> float:
    """`value` clipped to [0, 1], which rounding may leave."""
    return min(max(float(value), 0.0), 1.0)


def _passing(p: Floats, q: Floats, rho: float) -> float:
    """b(ρ), the probability that one drafted token passes K-SEQ's test."""
    return _probability(np.minimum(q, p / rho).sum())


def _any_of(probability: float, count: int) -> float:
    """1 - (1 - `probability`)^count, accurate where it is small."""
    return 1.0 if probability == 1 else -math.expm1(count * math.log1p(-probability))
