"""Accepted lengths of token-by-token and of block verification, by enumeration.

Sun et al., "Block verification accelerates speculative decoding", arXiv 2403.10444. For a drafted chain x =
x_1 … x_γ let τ be the number of accepted tokens, and x^ℓ its first ℓ tokens. Then

    E[τ] = Σ_ℓ Σ_{x^ℓ} a(x^ℓ)

with a(x^ℓ) the probability of drafting x^ℓ and accepting at least ℓ tokens:

- token by token a = Π_i min(p_i, q_i);
- block verification a = q(x^ℓ)·b_ℓ, where b_0 = 1 and b_i = min(1, b_{i-1}·p_i/q_i). Without a division:
  a(x^ℓ) = min(q(x^ℓ), a(x^{ℓ-1})·p_ℓ);
- a ≤ min(p(x^ℓ), q(x^ℓ)) for any lossless verification, the *min-joint* bound, which block verification need
  not reach.

From one line to the next a can only grow (induction on ℓ), so token ≤ block ≤ bound. All three are equal
where every target row is one-hot (temperature 0), the first two also where every draft row is."""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from specsim.core._types import checked
from specsim.core.distributions import check_rows
from specsim.theory._acceptance import expected_tokens

#: More drafts than this, V^γ, are not enumerated.
MAX_PATHS = 4096


class AcceptedTokens(NamedTuple):
    """E[τ] token by token, by block verification, and the min-joint bound."""

    token: Any
    block: Any
    bound: Any


class BlockRange(NamedTuple):
    """The E[τ] that block verification can have, and two-token rows p and q that reach `high`."""

    low: float
    high: float
    p: tuple[float, float]
    q: tuple[float, float]


@checked
def accepted_tokens(
    p: Sequence[Any], q: Sequence[Any], gamma: int, start: tuple[Any, Any] | None = None
) -> AcceptedTokens:
    """Enumerate E[τ] token by token and by block verification, and the min-joint bound.

    Parameters
    ----------
    p, q : row [V], or table [V][V]
        One row for every position, or the rows after each token. Rows of `Fraction` are used exactly.
    gamma : int
        Drafted tokens γ ≥ 1, with V^γ ≤ `MAX_PATHS`.
    start : (row, row), optional
        The rows (p, q) of the first position; required with a table.

    Returns
    -------
    AcceptedTokens
        `token`, `block` and `bound`, each in [0, γ]; Fractions if the rows are.

    Raises
    ------
    ValueError
        For other shapes, rows that are not pmfs, or a γ out of range.

    Examples
    --------
    >>> from fractions import Fraction as F
    >>> third = F(1, 3)
    >>> [str(value) for value in accepted_tokens([third, 2 * third], [2 * third, third], gamma=2)]
    ['10/9', '11/9', '4/3']
    """
    p_rows, q_rows = _table(p, "p"), _table(q, "q")
    if start is None:
        if len(p_rows) > 1 or len(q_rows) > 1:
            raise ValueError("start: a table needs the rows of the first position; give them")
        first = p_rows[0], q_rows[0]
    else:
        first = _row(start[0], "start, p"), _row(start[1], "start, q")
    size, *others = dict.fromkeys(len(row) for row in (*p_rows, *q_rows, *first))
    if others:
        raise ValueError(f"p, q: rows of {size} and {others[0]} tokens; give rows over one vocabulary")
    if gamma < 1 or gamma * math.log(size) > math.log(MAX_PATHS) + 1e-9:
        raise ValueError(f"gamma: {gamma} gives {size}^{gamma} drafts; give 1 to {MAX_PATHS} of them")

    totals = [first[0][0] * 0] * 3

    def extend(depth: int, rows: tuple[Sequence[Any], ...], before: tuple[Any, ...]) -> None:
        both, block, joint_p, joint_q = before
        for x, (px, qx) in enumerate(zip(*rows, strict=True)):
            if qx == 0:
                continue
            draft = joint_q * qx
            now = (both * min(px, qx), min(draft, block * px), joint_p * px, draft)
            totals[0] += now[0]
            totals[1] += now[1]
            totals[2] += min(joint_p * px, draft)
            if depth < gamma:
                extend(depth + 1, (p_rows[x % len(p_rows)], q_rows[x % len(q_rows)]), now)

    extend(1, first, (1, 1, 1, 1))
    return AcceptedTokens(*totals)


@checked
def block_range(alpha: float, gamma: int) -> BlockRange:
    """Find the range of E[τ] of block verification over all pairs p, q with Σ min(p, q) = `alpha`.

    Proved: (1) Every pair reaches the token-by-token value, which q = (1, 0) and p = (α, 1 - α) have. (2) Two
    tokens suffice for the upper end. E[b_ℓ] is concave and non-decreasing in each ratio p_i/q_i, and these
    are independent under q; merging the tokens with p > q, and the others, keeps α and replaces each ratio by
    at least its conditional mean, so by Jensen's inequality E[b_ℓ] does not fall. (3) The two-token pairs p =
    (a + 1 - α, α - a), q = (a, 1 - a), a from 0 to α, connect the lower to the upper end, so that every value
    between occurs. (4) a and α - a have the same E[τ]: read the draft backwards with p and q exchanged.

    Not proved: the best a, which is searched on a grid and then locally. It was α/2 in every case tried.

    Parameters
    ----------
    alpha : float
        Accepted / tested tokens of the standard rule, Σ min(p, q) of a fixed pair, in [0, 1].
    gamma : int
        Drafted tokens γ ≥ 1, with 2^γ ≤ `MAX_PATHS`.

    Returns
    -------
    BlockRange
        `low` and `high`, and rows `p` and `q` that reach `high`.

    Examples
    --------
    >>> found = block_range(0.5, 2)
    >>> [round(value, 6) for value in (*found[:2], *found.q)]
    [0.75, 0.875, 0.25, 0.75]
    """
    from scipy.optimize import minimize_scalar  # imported here: scipy.optimize is slow to load

    low = float(expected_tokens(alpha, gamma)) - 1.0

    def pair(a: float) -> tuple[tuple[float, float], tuple[float, float]]:
        return (a + (1.0 - alpha), alpha - a), (a, 1.0 - a)

    def value(a: float) -> float:
        return float(accepted_tokens(*pair(a), gamma).block)

    grid = np.linspace(0.0, alpha, 33)
    best = max(grid, key=value)
    if alpha > 0:
        near = (max(best - grid[1], 0.0), min(best + grid[1], alpha))
        local = minimize_scalar(lambda a: -value(a), bounds=near, method="bounded", options={"xatol": 1e-10})
        best = max((best, local.x), key=value)
    return BlockRange(low, max(value(best), low), *pair(float(best)))


def _table(rows: Any, name: str) -> list[Sequence[Any]]:
    """The rows after each token; a single one if they are all the same."""
    if not isinstance(rows, Sequence | np.ndarray) or isinstance(rows, str | bytes):
        raise TypeError(f"{name}: a {type(rows).__name__}; give a pmf, or one after each token")
    if not 0 < len(rows) <= MAX_PATHS:
        raise ValueError(f"{name}: {len(rows)} entries; give a pmf, or one after each token")
    if np.ndim(rows[0]) == 0:
        return [_row(rows, name)]
    if len(rows) != len(rows[0]):
        raise ValueError(f"{name}: {len(rows)} rows of {len(rows[0])} tokens; give one after each token")
    return [_row(row, f"{name}, row {token}") for token, row in enumerate(rows)]


def _row(row: Any, name: str) -> Sequence[Any]:
    if not any(isinstance(weight, Fraction) for weight in row):
        return check_rows(np.asarray(row), name).tolist()
    if any(weight < 0 for weight in row) or sum(row) != 1:
        raise ValueError(f"{name}: {[str(weight) for weight in row]} is not a pmf; give weights ≥ 0 of sum 1")
    return list(row)
