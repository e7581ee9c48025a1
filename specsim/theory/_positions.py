"""Steps whose acceptances are neither independent nor alike: by position, and for a pair that depends on the context.

For a Markov pair all is linear algebra on its contexts. With A[s, t] = Σ min(p, q) over the tokens that lead from
context s to t, R the same of (p - q)₊ and P of p, a step from s accepts at least k tokens with probability
(A^k 1)(s), and the next one begins from the law K = Σ_{k<γ} A^k R + A^γ P, since the recovered token and the rejection
before it have the joint law (p - q)₊.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from specsim.core.distributions import check_rows
from specsim.theory._acceptance import Floats

__all__ = ["MAX_CONTEXTS", "MarkovSteps", "expected_tokens_by_position", "markov_steps"]

#: Contexts beyond which a chain is not solved.
MAX_CONTEXTS = 2048


def expected_tokens_by_position(alphas: ArrayLike) -> Floats | float:
    """1 + Σ_k α_1 ⋯ α_k, the expected number of tokens of a step whose i-th token is accepted, once tested, with α_i.

    Exact whatever the dependence, as long as α_i is conditional on the tokens before having been accepted. `alphas`
    [..., γ], each in [0, 1]; the result has the leading shape. Raises ValueError outside [0, 1], or for γ = 0.

    >>> expected_tokens_by_position([0.5, 0.5])
    1.75
    """
    rates = np.asarray(alphas, dtype=np.float64)
    if rates.ndim == 0 or rates.shape[-1] == 0:
        raise ValueError("alphas: expected one for each drafted token, at least one")
    wrong = ~((rates >= 0) & (rates <= 1))
    if wrong.any():
        raise ValueError(f"alphas: {rates[wrong].flat[0]} is outside [0, 1]")
    value = 1.0 + np.cumprod(rates, axis=-1).sum(axis=-1)
    return float(value) if value.ndim == 0 else value


class MarkovSteps(NamedTuple):
    """Speculative steps in the long run, exactly: tokens per step, the three α, and α by position [γ].

    `alpha_context` is the mean of Σ min(p, q) over the contexts of the target's text, `alpha_verified` accepted /
    tested, `alpha_drafted` accepted / drafted. `by_position[i]` is the probability that the token at i is accepted once
    those before were; NaN never: 0 where none ever was.
    """

    tokens_per_step: float
    alpha_context: float
    alpha_verified: float
    alpha_drafted: float
    by_position: Floats


def markov_steps(p: ArrayLike, q: ArrayLike, gamma: int) -> MarkovSteps:
    """Standard verification of γ = `gamma` ≥ 1 tokens drafted from `q` for the target `p`, step after step.

    `p` and `q` are [V], or [V]*k + [V] with a row after each context of k tokens, as a `TableModel` has them. Raises ValueError for other shapes, more than `MAX_CONTEXTS` contexts, rows that are not
    pmfs, or a chain of steps with more than one stationary law.

    >>> found = markov_steps([[0.9, 0.1], [0.5, 0.5]], [[0.6, 0.4], [0.5, 0.5]], gamma=2)
    >>> [round(float(value), 4) for value in found[:4]]
    [2.2879, 0.75, 0.7434, 0.6439]
    """
    p_rows, q_rows = check_rows(p, "p"), check_rows(q, "q")
    size = p_rows.shape[-1]
    if p_rows.shape != q_rows.shape or set(p_rows.shape) != {size}:
        raise ValueError(f"p {p_rows.shape} and q {q_rows.shape}: expected one shape, [V] or [V, …, V]")
    p_rows, q_rows = p_rows.reshape(-1, size), q_rows.reshape(-1, size)
    contexts = len(p_rows)
    if contexts > MAX_CONTEXTS:
        raise ValueError(f"{contexts} contexts: at most {MAX_CONTEXTS} are solved")
    if gamma < 1:
        raise ValueError(f"gamma: {gamma} is not a number of drafted tokens ≥ 1")
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
    """[S, S], the mass of `rows` [S, V] that leads from one context to another."""
    contexts, size = rows.shape
    matrix = np.zeros((contexts, contexts))
    for context in range(contexts):
        for token in range(size):
            matrix[context, (context * size + token) % contexts] += rows[context, token]
    return matrix


def _stationary(matrix: Floats) -> Floats:
    """The law [S] that `matrix` leaves as it is."""
    size = len(matrix)
    equations = np.vstack([matrix.T - np.eye(size), np.ones(size)])
    law, _, rank, _ = np.linalg.lstsq(equations, np.append(np.zeros(size), 1.0), rcond=None)
    if rank < size:
        raise ValueError("p and q: steps have more than one stationary law, since some contexts never meet")
    return np.clip(law, 0.0, None) / np.clip(law, 0.0, None).sum()
