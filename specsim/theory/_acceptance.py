"""Closed forms: acceptance, tokens per step and its law.

α is the probability that a drafted token is accepted. Theorem and equation numbers are those of Leviathan,
Kalman & Matias, arXiv 2211.17192. The formulas in α alone assume that acceptances are independent with one
common probability; where that fails, as on real text, they are off, and `specsim.simulate` says by how much.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specsim.core.distributions import check_rows

__all__ = [
    "acceptance_rate",
    "accepted_law",
    "beam_acceptance",
    "check_alpha_gamma",
    "divergence",
    "expected_tokens",
    "non_iterative_acceptance",
]

Floats = NDArray[np.float64]


def acceptance_rate(p: ArrayLike, q: ArrayLike, lenience: float = 1.0) -> Floats | float:
    """β = Σ_x min(p(x), q(x)), the probability that standard sampling accepts a token drafted from q (Thm 3.5).

    With `lenience` l in (0, 1], Σ_x min(p(x)/l, q(x)): drafts pass with probability p/(l·q) (A.5). `p` and `q`
    broadcast over leading axes, the last is the vocabulary; the result has the leading shape, a float for one pair. In
    [0, 1]. Raises ValueError if they are not rows over one vocabulary, or for another lenience.

    >>> round(acceptance_rate([0.5, 0.5], [0.8, 0.2]), 12)
    0.7
    >>> round(acceptance_rate([0.5, 0.5], [0.8, 0.2], lenience=0.75), 12)
    0.866666666667
    """
    if not 0 < lenience <= 1:
        raise ValueError(f"lenience: {lenience} is outside (0, 1]; 1 is the standard rule")
    p_rows, q_rows = _pair(p, q)
    rate = np.minimum(p_rows / lenience, q_rows).sum(axis=-1).clip(max=1.0)
    return float(rate) if rate.ndim == 0 else rate


def divergence(p: ArrayLike, q: ArrayLike) -> Floats | float:
    """D_LK(p, q) = Σ_x `|p(x) - M(x)|` with M = (p + q)/2, which is 1 - β and the total variation (Def 3.2, Lemma 3.3).

    Shapes and errors as `acceptance_rate`.

    >>> round(divergence([0.5, 0.5], [0.8, 0.2]), 12)
    0.3
    """
    p_rows, q_rows = _pair(p, q)
    distance = 0.5 * np.abs(p_rows - q_rows).sum(axis=-1)
    return float(distance) if distance.ndim == 0 else distance


def non_iterative_acceptance(p: ArrayLike, q: ArrayLike) -> Floats | float:
    """1/max_x(p(x)/q(x)), how often plain rejection sampling accepts a draft at its one attempt (A.2).

    Never above `acceptance_rate`, and 0 where the draft lacks a token of the target. Shapes and errors as there.

    >>> non_iterative_acceptance([0.5, 0.5], [0.8, 0.2])
    0.4
    """
    p_rows, q_rows = _pair(p, q)
    ratio = np.divide(
        q_rows, p_rows, out=np.full(np.broadcast_shapes(p_rows.shape, q_rows.shape), np.inf), where=p_rows > 0
    )
    rate = ratio.min(axis=-1).clip(max=1.0)
    return float(rate) if rate.ndim == 0 else rate


def beam_acceptance(p: ArrayLike, q: ArrayLike, width: int, drafted: int) -> Floats | float:
    """Whether the `width` likeliest tokens of p are among the `drafted` likeliest of q, so that a step of beam search
    is accepted (A.4); averaged over rows it is α for beams.

    `p` and `q` may be scores of any kind, [..., N] over the same candidates; ties go to the smaller index. Raises
    ValueError for other shapes, or unless 1 ≤ width ≤ drafted ≤ N.

    >>> beam_acceptance([0.5, 0.3, 0.2], [0.4, 0.1, 0.5], width=1, drafted=2)
    1.0
    """
    p_rows, q_rows = np.asarray(p, dtype=np.float64), np.asarray(q, dtype=np.float64)
    if p_rows.shape != q_rows.shape or p_rows.ndim == 0 or not np.isfinite([p_rows, q_rows]).all():
        raise ValueError(
            f"p {p_rows.shape} and q {q_rows.shape}: expected finite scores of one shape [..., N]"
        )
    if not 1 <= width <= drafted <= p_rows.shape[-1]:
        raise ValueError(f"expected 1 ≤ width ≤ drafted ≤ {p_rows.shape[-1]}, got {width} and {drafted}")
    best, kept = ((-rows).argsort(axis=-1, kind="stable") for rows in (p_rows, q_rows))
    inside = (best[..., :width, None] == kept[..., None, :drafted]).any(axis=-1).all(axis=-1)
    return float(inside) if inside.ndim == 0 else inside.astype(np.float64)


def expected_tokens(alpha: ArrayLike, gamma: ArrayLike) -> Floats | float:
    """(1 - α^{γ+1})/(1 - α), the expected number of tokens that a step of γ drafted tokens emits (Eq. 1).

    `alpha` in [0, 1] and integers `gamma` ≥ 0 broadcast; at α = 1 the value is the limit γ + 1.
    Raises ValueError outside these ranges.

    >>> round(expected_tokens(0.8, 5), 4)
    3.6893
    >>> expected_tokens(1.0, 5)
    6.0
    """
    a, g = check_alpha_gamma(alpha, gamma)
    distance = 1.0 - a
    # log1p and expm1 keep the quotient accurate where α is close to 1; at 1 itself it is 0/0
    with np.errstate(divide="ignore", invalid="ignore"):
        value = -np.expm1((g + 1.0) * np.log1p(-distance)) / distance
    value = np.where(distance == 0.0, g + 1.0, value)
    return float(value) if value.ndim == 0 else value


def accepted_law(alpha: float, gamma: int) -> Floats:
    """P(τ = 0 … γ) of the number τ of accepted tokens: the capped geometric law behind Eq. 1, shape [γ+1].

    The step emits τ + 1 tokens. Raises ValueError outside the ranges of `expected_tokens`.

    >>> accepted_law(0.5, 2)
    array([0.5 , 0.25, 0.25])
    """
    a, g = check_alpha_gamma(alpha, gamma)
    if a.ndim or g.ndim:
        raise ValueError("accepted_law: expected one alpha and one gamma, not arrays")
    powers = a ** np.arange(int(g) + 2)
    law = powers[:-1] - powers[1:]
    law[-1] = powers[-2]
    return law


def _pair(p: ArrayLike, q: ArrayLike) -> tuple[Floats, Floats]:
    p_rows, q_rows = check_rows(p, "p"), check_rows(q, "q")
    if p_rows.shape[-1] != q_rows.shape[-1]:
        raise ValueError(
            f"p has {p_rows.shape[-1]} tokens and q {q_rows.shape[-1]}: they must share one vocabulary"
        )
    return p_rows, q_rows


def check_alpha_gamma(alpha: ArrayLike, gamma: ArrayLike) -> tuple[Floats, Floats]:
    a, g = np.asarray(alpha, dtype=np.float64), np.asarray(gamma, dtype=np.float64)
    if not ((a >= 0) & (a <= 1)).all():
        raise ValueError(f"alpha: {a[~((a >= 0) & (a <= 1))].flat[0]} is outside [0, 1]")
    if not ((g >= 0) & (g == np.floor(g)) & np.isfinite(g)).all():
        raise ValueError(f"gamma: {gamma!r} is not an integer ≥ 0")
    return a, g
