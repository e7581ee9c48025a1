"""Closed forms for one draft: acceptance, tokens per step and their distribution.

α is the probability that a drafted token is accepted. The formulas in α alone assume independent acceptances
with one common probability. On real text that assumption fails; `specsim.simulate` measures by how much.
Arguments outside the ranges given here, and rows that are no pmfs over one vocabulary, raise ValueError."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from specsim.core._tables import NONE, Table, span
from specsim.core._types import Floats, check_between, check_count, checked
from specsim.core.distributions import check_rows
from specsim.models._drafts.tree import MAX_NODES

#: The longest draft whose distribution is computed.
MOST_GAMMA = 2**16


@checked
def acceptance_rate(p: ArrayLike, q: ArrayLike, lenience: float = 1.0) -> Floats | float:
    """β = Σ_x min(p(x), q(x)), the probability that standard sampling accepts a token drafted from q.

    Leviathan, Kalman & Matias, arXiv 2211.17192, Theorem 3.5; Appendix A.5 for lenience.

    Parameters
    ----------
    p, q : array_like, shape [..., V]
        Target and draft; leading axes broadcast.
    lenience : float
        l in (0, 1]: with l < 1 the result is Σ_x min(p(x)/l, q(x)), drafts passing with probability p/(l·q).

    Returns
    -------
    float or ndarray of the leading shape
        In [0, 1].

    Examples
    --------
    >>> round(acceptance_rate([0.5, 0.5], [0.8, 0.2]), 12)
    0.7
    >>> round(acceptance_rate([0.5, 0.5], [0.8, 0.2], lenience=0.75), 12)
    0.866666666667
    """
    check_between("lenience", lenience, 0, 1, "lenience; 1 is the standard rule", "(]")
    p_rows, q_rows = _pair(p, q)
    return plain(np.minimum(p_rows / lenience, q_rows).sum(axis=-1).clip(max=1.0))


@checked
def divergence(p: ArrayLike, q: ArrayLike) -> Floats | float:
    """D_LK(p, q) = Σ_x `|p(x) - M(x)|` with M = (p + q)/2, which equals 1 - β and the total variation.

    Leviathan, Kalman & Matias, arXiv 2211.17192, Definition 3.2 and Lemma 3.3.

    Parameters
    ----------
    p, q : array_like, shape [..., V]
        Target and draft; leading axes broadcast.

    Returns
    -------
    float or ndarray of the leading shape
        In [0, 1].

    Examples
    --------
    >>> round(divergence([0.5, 0.5], [0.8, 0.2]), 12)
    0.3
    """
    p_rows, q_rows = _pair(p, q)
    return plain(0.5 * np.abs(p_rows - q_rows).sum(axis=-1))


@checked
def non_iterative_acceptance(p: ArrayLike, q: ArrayLike) -> Floats | float:
    """1/max_x(p(x)/q(x)), the probability that rejection sampling with a single attempt accepts the draft.

    Never above `acceptance_rate`, and 0 where q lacks a token of p. Leviathan, Kalman & Matias, arXiv
    2211.17192, Appendix A.2.

    Parameters
    ----------
    p, q : array_like, shape [..., V]
        Target and draft; leading axes broadcast.

    Returns
    -------
    float or ndarray of the leading shape
        In [0, 1].

    Examples
    --------
    >>> non_iterative_acceptance([0.5, 0.5], [0.8, 0.2])
    0.4
    """
    p_rows, q_rows = _pair(p, q)
    infinite = np.full(np.broadcast_shapes(p_rows.shape, q_rows.shape), np.inf)
    return plain(np.divide(q_rows, p_rows, out=infinite, where=p_rows > 0).min(axis=-1).clip(max=1.0))


@checked
def beam_acceptance(p: ArrayLike, q: ArrayLike, width: int, drafted: int) -> Floats | float:
    """Whether a step of beam search is accepted: are the best tokens of p among the drafted ones of q?

    The mean over rows is α for beams. Leviathan, Kalman & Matias, arXiv 2211.17192, Appendix A.4.

    Parameters
    ----------
    p, q : array_like, shape [..., N]
        Finite scores of any kind over the same candidates. Ties go to the smaller index.
    width : int
        Number of the best candidates of p that are needed.
    drafted : int
        Number of the best candidates of q that were drafted, 1 ≤ width ≤ drafted ≤ N.

    Returns
    -------
    float or ndarray of the leading shape
        1 or 0.

    Raises
    ------
    ValueError
        For other shapes or sizes.

    Examples
    --------
    >>> beam_acceptance([0.5, 0.3, 0.2], [0.4, 0.1, 0.5], width=1, drafted=2)
    1.0
    """
    p_rows, q_rows = np.asarray(p, dtype=np.float64), np.asarray(q, dtype=np.float64)
    if p_rows.shape != q_rows.shape or p_rows.ndim == 0 or not np.isfinite([p_rows, q_rows]).all():
        raise ValueError(f"p, q: shapes {p_rows.shape}, {q_rows.shape}; give finite scores, both [..., N]")
    if not 1 <= width <= drafted <= p_rows.shape[-1]:
        raise ValueError(f"width, drafted: {width}, {drafted}; give 1 ≤ width ≤ drafted ≤ {p_rows.shape[-1]}")
    best, kept = ((-rows).argsort(axis=-1, kind="stable") for rows in (p_rows, q_rows))
    inside = (best[..., :width, None] == kept[..., None, :drafted]).any(axis=-1).all(axis=-1)
    return plain(inside.astype(np.float64))


@checked
def expected_tokens(alpha: ArrayLike, gamma: ArrayLike) -> Floats | float:
    """(1 - α^{γ+1})/(1 - α), the expected number of tokens that a step of γ drafted tokens emits.

    Leviathan, Kalman & Matias, arXiv 2211.17192, Equation 1.

    Parameters
    ----------
    alpha : array_like
        Accepted / tested tokens, in [0, 1]; at 1 the value is the limit γ + 1.
    gamma : array_like of int
        At least 0; broadcasts with `alpha`.

    Returns
    -------
    float or ndarray of the broadcast shape
        In [1, γ + 1].

    Examples
    --------
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
    return plain(np.where(distance == 0.0, g + 1.0, value))


@checked
def accepted_law(alpha: float, gamma: int) -> Floats:
    """P(τ = 0 … γ) of the number τ of accepted tokens: a step emits τ + 1 tokens.

    Equation 1 of Leviathan, Kalman & Matias, arXiv 2211.17192, is its mean.

    Parameters
    ----------
    alpha : float
        Accepted / tested tokens, in [0, 1].
    gamma : int
        Drafted tokens, from 0 to 65536.

    Returns
    -------
    ndarray, shape [γ+1]
        Sums to 1.

    Examples
    --------
    >>> accepted_law(0.5, 2)
    array([0.5 , 0.25, 0.25])
    """
    check_between("alpha", alpha, 0, 1, "probability")
    check_count("gamma", gamma, 0, MOST_GAMMA)
    powers = np.float64(alpha) ** np.arange(gamma + 2)
    law = powers[:-1] - powers[1:]
    law[-1] = powers[-2]
    return law


def _pair(p: ArrayLike, q: ArrayLike) -> tuple[Floats, Floats]:
    p_rows, q_rows = check_rows(p, "p"), check_rows(q, "q")
    if p_rows.shape[-1] != q_rows.shape[-1]:
        sizes = f"{p_rows.shape[-1]} and {q_rows.shape[-1]}"
        raise ValueError(f"p, q: {sizes} tokens; give rows over one vocabulary")
    return p_rows, q_rows


def check_alpha_gamma(alpha: ArrayLike, gamma: ArrayLike) -> tuple[Floats, Floats]:
    a, g = np.asarray(alpha, dtype=np.float64), np.asarray(gamma, dtype=np.float64)
    if not ((a >= 0) & (a <= 1)).all():
        raise ValueError(f"alpha: {a[~((a >= 0) & (a <= 1))].flat[0]} is outside [0, 1]; give a probability")
    if not ((g >= 0) & (g == np.floor(g)) & np.isfinite(g)).all():
        raise ValueError(f"gamma: {gamma!r} is not an integer ≥ 0; give a number of drafted tokens")
    return a, g


def plain(value: Floats | float) -> Floats | float:
    """A float for an array of no dimension."""
    return float(value) if np.ndim(value) == 0 else value


#: The rates that tables of results show.
RATES = ("tokens_per_step", "alpha_context", "alpha_verified", "alpha_drafted")


def rates(
    found: Any, gamma: int | None, errors: Mapping[str, float] | None = None, closed_form: float | None = None
) -> Table:
    """The table of `found`, whose rates are numbers or bounds, with standard `errors` by name; last what the
    i.i.d. formula makes of each α for a chain of `gamma`, else the `closed_form` of tokens per step."""
    rows = []
    for name in RATES:
        label, value = name.replace("alpha", "α").replace("_", " "), getattr(found, name)
        if value is None or isinstance(value, tuple):
            rows.append([label, NONE if value is None else span(value, "{:.5f}".format), ""])
            continue
        iid = "" if gamma is None or name == "tokens_per_step" else f"{expected_tokens(value, gamma):.5f}"
        rows.append([label, with_error(value, (errors or {}).get(name)), iid])
    if gamma is None and closed_form is not None:
        rows = [[label, mean, f"{closed_form:.5f}" * (label == rows[0][0])] for label, mean, _ in rows]
        return Table(("", "mean", "closed form"), rows)
    if gamma is None:
        return Table((), [row[:2] for row in rows])
    return Table(("", "mean", "i.i.d. formula: tokens per step"), rows)


def with_error(value: float, error: float | None) -> str:
    """A mean with its standard error, if it has one: of a single step it is NaN, shown as a dash."""
    if error is None:
        return f"{value:.5f}"
    return f"{value:.5f} ± {NONE if math.isnan(error) else format(error, '.5f')}"


# Steps whose acceptances depend on position and context. For a Markov pair the answer is linear algebra on
# its contexts. With A[s, t] = Σ min(p, q) over the tokens that lead from context s to t, R the same sum of
# (p - q)₊ and P of p, a step from s accepts at least k tokens with probability (A^k 1)(s). The next step
# begins from the distribution K = Σ_{k<γ} A^k R + A^γ P, since a rejection and the token recovered after it
# have the joint mass (p - q)₊.

#: The most contexts for which the chain is solved.
MAX_CONTEXTS = 2048


@checked
def expected_tokens_by_position(alphas: ArrayLike) -> Floats | float:
    """1 + Σ_k α_1 ⋯ α_k, the expected tokens of a step whose i-th draft, once tested, passes with α_i.

    Exact under any dependence, if α_i is conditional on the acceptance of the tokens before.

    Parameters
    ----------
    alphas : array_like, shape [..., γ]
        In [0, 1], γ ≥ 1.

    Returns
    -------
    float or ndarray of the leading shape
        In [1, γ + 1].

    Raises
    ------
    ValueError
        Outside these ranges.

    Examples
    --------
    >>> expected_tokens_by_position([0.5, 0.5])
    1.75
    """
    rates = np.asarray(alphas, dtype=np.float64)
    if rates.ndim == 0 or rates.shape[-1] == 0:
        raise ValueError("alphas: none; give one for each drafted token")
    wrong = ~((rates >= 0) & (rates <= 1))
    if wrong.any():
        raise ValueError(f"alphas: {rates[wrong].flat[0]} is outside [0, 1]; give probabilities")
    return plain(1.0 + np.cumprod(rates, axis=-1).sum(axis=-1))


class MarkovSteps(NamedTuple):
    """Exact long-run averages of speculative steps.

    `alpha_context` is the mean of Σ min(p, q) over the contexts of the target's text, `alpha_verified`
    accepted / tested, `alpha_drafted` accepted / drafted, and by_position[i] the probability that token i is
    accepted, given that those before it were; 0 where they never are."""

    tokens_per_step: float
    alpha_context: float
    alpha_verified: float
    alpha_drafted: float
    by_position: Floats


@checked
def markov_steps(p: ArrayLike, q: ArrayLike, gamma: int) -> MarkovSteps:
    """Solve for standard verification of tokens drafted from one Markov model for another, step by step.

    Parameters
    ----------
    p, q : array_like, shape [V] or [V]*k + [V]
        Tables of target and draft, with a row after each context of k tokens, as in `TableModel`.
    gamma : int
        Drafted tokens γ ≥ 1.

    Returns
    -------
    MarkovSteps
        Exact long-run averages.

    Raises
    ------
    ValueError
        For other shapes, more than `MAX_CONTEXTS` contexts, rows that are not pmfs, or steps with more than
        one stationary distribution.

    Examples
    --------
    >>> found = markov_steps([[0.9, 0.1], [0.5, 0.5]], [[0.6, 0.4], [0.5, 0.5]], gamma=2)
    >>> [round(float(value), 4) for value in found[:4]]
    [2.2879, 0.75, 0.7434, 0.6439]
    """
    p_rows, q_rows = check_rows(p, "p"), check_rows(q, "q")
    size = p_rows.shape[-1]
    if p_rows.shape != q_rows.shape or set(p_rows.shape) != {size}:
        shapes = f"{p_rows.shape} and {q_rows.shape}"
        raise ValueError(f"p, q: shapes {shapes}; give tables of one shape, [V] or [V, …, V]")
    p_rows, q_rows = p_rows.reshape(-1, size), q_rows.reshape(-1, size)
    contexts = len(p_rows)
    if contexts > MAX_CONTEXTS:
        raise ValueError(f"p, q: {contexts} contexts are more than {MAX_CONTEXTS}; give smaller tables")
    check_count("gamma", gamma, 1, MAX_NODES)
    both = np.minimum(p_rows, q_rows)
    accept, recover, follow = (_transitions(rows) for rows in (both, p_rows - both, p_rows))
    powers = [np.eye(contexts)]
    for _ in range(gamma):
        powers.append(powers[-1] @ accept)
    starts = _stationary(sum(power @ recover for power in powers[:-1]) + powers[-1] @ follow)
    reached = np.array([float(starts @ power.sum(axis=1)) for power in powers])
    accepted = float(reached[1:].sum())
    return MarkovSteps(
        tokens_per_step=1.0 + accepted,
        alpha_context=float(_stationary(follow) @ both.sum(axis=1)),
        alpha_verified=accepted / float(reached[:-1].sum()),
        alpha_drafted=accepted / gamma,
        by_position=np.divide(reached[1:], reached[:-1], out=np.zeros(gamma), where=reached[:-1] > 0),
    )


def _transitions(rows: Floats) -> Floats:
    """The mass of `rows` [S, V] that leads from one context to another, [S, S]."""
    matrix = np.zeros((len(rows), len(rows)))
    following = np.arange(rows.size).reshape(rows.shape) % len(rows)
    np.add.at(matrix, (np.arange(len(rows))[:, None], following), rows)
    return matrix


def _stationary(matrix: Floats) -> Floats:
    size = len(matrix)
    equations = np.vstack([matrix.T - np.eye(size), np.ones(size)])
    law, _, rank, _ = np.linalg.lstsq(equations, np.append(np.zeros(size), 1.0), rcond=None)
    if rank < size:
        raise ValueError(
            "p, q: steps have more than one stationary distribution, since some contexts never meet; give "
            "rows that connect them"
        )
    return np.clip(law, 0.0, None) / np.clip(law, 0.0, None).sum()
