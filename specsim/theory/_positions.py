"""Steps whose acceptances depend on position and context.

For a Markov pair the answer is linear algebra on its contexts. With A[s, t] = Σ min(p, q) over the tokens
that lead from context s to t, R the same sum of (p - q)₊ and P of p, a step from s accepts at least k tokens
with probability (A^k 1)(s). The next step begins from the distribution K = Σ_{k<γ} A^k R + A^γ P, since a
rejection and the token recovered after it have the joint mass (p - q)₊."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from specsim.core._arguments import checked
from specsim.core._checks import check_count
from specsim.core._types import Floats
from specsim.core.distributions import check_rows
from specsim.models._drafts.tree import MAX_NODES
from specsim.theory._acceptance import plain

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
