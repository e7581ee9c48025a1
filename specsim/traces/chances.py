"""With what probability the standard rule accepts a logged drafted token x: min(1, p(x)/q(x)).

Given the rows and x that is a known number, up to rounding, and for truncated rows an interval: a token that a row does
not list has at most the smallest probability listed there, and at most the tail.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from specsim.distributions import Floats
from specsim.traces.format import DTYPES, AnyColumns, Columns, Layout, rounding
from specsim.traces.rows import decode

__all__ = ["acceptance_chances", "drafted_probabilities"]


def drafted_probabilities(columns: AnyColumns, layout: Layout) -> tuple[Floats, Floats]:
    """Bounds [2, S, γ] on p(x) and q(x) of the drafted tokens x of S whole steps, as stored."""
    return tuple(  # type: ignore[return-value]
        ends.reshape(2, -1, layout.rows_per_step)[..., : layout.gamma]
        for ends in _token_ends(columns, layout)
    )


def acceptance_chances(
    columns: AnyColumns, layout: Layout, lenience: float = 1.0, slack: float = 0.0
) -> Floats:
    """Bounds [2, S, γ] on min(1, p(x)/(l·q(x))) of the drafted tokens x of S whole steps, l the `lenience`.

    Wide enough for the rounding of the stored dtype, which moves p and q by at most u times themselves, or half the
    smallest subnormal number; and for p and q as they were used to be off by `slack` times themselves.
    """
    info = ml_dtypes.finfo(DTYPES[layout.dtype])
    u, tiny = float(info.eps) / 2 + slack, float(info.smallest_subnormal)
    p, q = drafted_probabilities(columns, layout)
    low = np.maximum(p[0] * (1 - u) - tiny, 0.0) / (lenience * (q[1] * (1 + u) + tiny))
    least_q = lenience * np.maximum(q[0] * (1 - u) - tiny, 0.0)
    with np.errstate(divide="ignore"):
        high = np.divide(p[1] * (1 + u) + tiny, least_q, out=np.ones_like(low), where=least_q > 0)
    return np.stack([low, high]).clip(max=1.0)


def _token_ends(columns: AnyColumns, layout: Layout) -> tuple[Floats, Floats]:
    """Bounds [2, R] on p and q at each row's token; of a row without one they mean nothing."""
    if isinstance(columns, Columns):
        places = np.arange(columns.token.size), np.maximum(columns.token, 0)
        exact = (decode(np.ascontiguousarray(rows[places])[None])[0] for rows in (columns.p, columns.q))
        p, q = (np.stack([values, values]).astype(np.float64) for values in exact)
        return p, q
    return (
        _listed_ends(columns.token, columns.p_tokens, decode(columns.p), rounding(layout)),
        _listed_ends(columns.token, columns.q_tokens, decode(columns.q), rounding(layout)),
    )


def _listed_ends(
    token: NDArray[np.int32], tokens: NDArray[np.int32], values: NDArray[Any], slack: float
) -> Floats:
    """Bounds [2, R] on the probabilities of `token` [R], from rows whose tails are known but for `slack`."""
    own = (tokens == token[:, None]) & (tokens >= 0)
    value = np.where(own, values, 0.0).sum(axis=1, dtype=np.float64)
    tail = np.maximum(1.0 - values.sum(axis=1, dtype=np.float64), 0.0) + slack
    most = np.minimum(np.where(tokens >= 0, values, 1.0).min(axis=1), tail)
    listed = own.any(axis=1)
    return np.stack([np.where(listed, value, 0.0), np.where(listed, value, most)])
