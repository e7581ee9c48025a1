"""Rows truncated to their most probable tokens, and the bounds on β = Σ min(p, q) that they give.

docs/proofs.md has the bounds, with the proof, under "Logs"."""

from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from numpy.typing import ArrayLike, NDArray

from specsim.core._kernels import kernel
from specsim.core._types import Floats, Ints, check_count, checked
from specsim.core.distributions import capped_ratio, check_rows
from specsim.traces._format import DTYPES, AnyColumns, Columns, Layout, rounding
from specsim.traces._pieces import decode

#: The padding of token lists, and a missing drafted token: -1 as an unsigned number.
NO_TOKEN = np.uint32(0xFFFFFFFF)


class Listed(NamedTuple):
    """A truncated row: token ids and their probabilities; the other tokens share the rest."""

    tokens: Ints
    probabilities: Floats


@checked
def truncate(row: ArrayLike, k: int, keep: int | None = None) -> Listed:
    """Truncate a row to its `k` most probable tokens, the lower ids among ties.

    Parameters
    ----------
    row : array_like, shape [V]
        A pmf.
    k : int
        1 … V.
    keep : int, optional
        A token to list in any case, in place of the least probable one.

    Returns
    -------
    Listed
        Tokens in rising order, and their probabilities.

    Raises
    ------
    ValueError
        For a row that is not a pmf, or k out of range.

    Examples
    --------
    >>> truncate([0.1, 0.5, 0.2, 0.2], 2)
    Listed(tokens=array([1, 2]), probabilities=array([0.5, 0.2]))
    >>> truncate([0.1, 0.5, 0.2, 0.2], 2, keep=0).tokens
    array([0, 1])
    """
    values = check_rows(row, "row")
    if values.ndim != 1 or not 1 <= k <= values.size:
        raise ValueError(f"truncate: k = {k} of a row of shape {values.shape}; expected a row [V], 1 ≤ k ≤ V")
    if keep is not None:
        check_count("keep", keep, 0, values.size - 1)
    tokens = np.argsort(-values, kind="stable")[:k]
    if keep is not None and keep not in tokens:
        tokens[-1] = keep
    tokens = np.sort(tokens)
    return Listed(tokens, values[tokens])


@kernel
def bound_rows(p_tokens, p, q_tokens, q, drafted, vocab_size, ends, mass, fault):
    """Fill ends [2, R] with the bounds on β of each row, mass [2, R] with what is listed of p and of q, and
    fault [R] with 1 where tokens are not in rising order, then `NO_TOKEN`. Tokens come as unsigned numbers.
    """
    for row in range(drafted.size):
        p_mass, p_cap, p_sound = _listing(p_tokens[row], p[row], drafted[row], vocab_size)
        q_mass, q_cap, q_sound = _listing(q_tokens[row], q[row], drafted[row], vocab_size)
        known = p_only = q_only = 0.0
        i = j = 0
        while i < p_tokens.shape[1] or j < q_tokens.shape[1]:
            # no token is the largest number: a list that has ended waits for the other
            x = p_tokens[row, i] if i < p_tokens.shape[1] else NO_TOKEN
            y = q_tokens[row, j] if j < q_tokens.shape[1] else NO_TOKEN
            if x == y:
                if x == NO_TOKEN:
                    break
                known += min(np.float64(p[row, i]), np.float64(q[row, j]))
                i += 1
                j += 1
            elif x < y:
                p_only += min(np.float64(p[row, i]), q_cap)
                i += 1
            else:
                q_only += min(np.float64(q[row, j]), p_cap)
                j += 1
        p_tail = max(0.0, 1.0 - p_mass)
        q_tail = max(0.0, 1.0 - q_mass)
        met = min(p_only, q_tail) + min(q_only, p_tail)
        unlisted = min(max(0.0, p_tail - q_only), max(0.0, q_tail - p_only))
        ends[0, row] = known
        ends[1, row] = known + met + unlisted
        mass[0, row] = p_mass
        mass[1, row] = q_mass
        fault[row] = 0 if p_sound and q_sound else 1


@kernel
def _listing(tokens, values, drafted, vocab_size):
    """The listed mass, the most that another token can have, and whether the list is valid."""
    mass = 0.0
    cap = 1.0
    sound = True
    for i in range(tokens.size):
        value = np.float64(values[i])
        mass += value
        if tokens[i] == NO_TOKEN:
            sound = sound and value == 0.0
        else:
            if tokens[i] != drafted:
                cap = min(cap, value)
            sound = sound and tokens[i] < vocab_size
            if i > 0:
                sound = sound and tokens[i - 1] < tokens[i]
    return mass, cap, sound


# Bounds on p(x) and q(x) of the drafted tokens x, and on their acceptance probability min(1, p/q). Whole rows
# determine these up to rounding. A token that a truncated row does not list has at most the smallest listed
# probability, and at most the tail.


def drafted_probabilities(columns: AnyColumns, layout: Layout, slack: float = 0.0) -> tuple[Floats, Floats]:
    """Bounds [2, S, γ] on p(x) and q(x) of the drafted tokens x of S whole steps; upper ones are > 0.

    They include the rounding of the stored dtype, which moves p and q by at most u times themselves or half
    the smallest subnormal number, and a relative error `slack` of the logged p and q."""
    info = ml_dtypes.finfo(DTYPES[layout.dtype])
    u, tiny = float(info.eps) / 2 + slack, float(info.smallest_subnormal)
    stride, every = layout.rows_per_step, _token_ends(columns, layout)
    p, q = (ends.reshape(2, -1, stride)[..., : layout.gamma] for ends in every)
    low_p, low_q = (np.maximum(ends[0] * (1 - u) - tiny, 0.0) for ends in (p, q))
    return np.stack([low_p, p[1] * (1 + u) + tiny]), np.stack([low_q, q[1] * (1 + u) + tiny])


def acceptance_chances(
    columns: AnyColumns, layout: Layout, lenience: float = 1.0, slack: float = 0.0
) -> Floats:
    """Bounds [2, S, γ] on min(1, p(x)/(l·q(x))) of the drafted tokens of S whole steps, l the `lenience`."""
    p, q = drafted_probabilities(columns, layout, slack)
    return capped_ratio(p, lenience * q[::-1])


def _token_ends(columns: AnyColumns, layout: Layout) -> tuple[Floats, Floats]:
    """Bounds [2, R] on p and q at each row's token; arbitrary for a row without one."""
    if isinstance(columns, Columns):
        places = np.arange(columns.token.size), np.maximum(columns.token, 0)
        exact = (decode(np.ascontiguousarray(rows[places])[None])[0] for rows in (columns.p, columns.q))
        p, q = (np.stack([values, values]).astype(np.float64) for values in exact)
        return p, q
    token, slack = columns.token, rounding(layout)
    p = _listed_ends(token, columns.p_tokens, decode(columns.p), slack)
    return p, _listed_ends(token, columns.q_tokens, decode(columns.q), slack)


def _listed_ends(
    token: NDArray[np.int32], tokens: NDArray[np.int32], values: NDArray[Any], slack: float
) -> Floats:
    """Bounds [2, R] on the probabilities of `token` [R], from rows whose tails are known up to `slack`."""
    own = (tokens == token[:, None]) & (tokens >= 0)
    value = np.where(own, values, 0.0).sum(axis=1, dtype=np.float64)
    tail = np.maximum(1.0 - values.sum(axis=1, dtype=np.float64), 0.0) + slack
    most = np.minimum(np.where(tokens >= 0, values, 1.0).min(axis=1), tail)
    listed = own.any(axis=1)
    return np.stack([np.where(listed, value, 0.0), np.where(listed, value, most)])
