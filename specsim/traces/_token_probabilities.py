"""Bounds on p(x) and q(x) of the drafted tokens x, and on their acceptance probability min(1, p/q).

Whole rows determine these up to rounding. A token that a truncated row does not list has at most the smallest
listed probability, and at most the tail.
"""

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from specsim.core._types import Floats
from specsim.core.distributions import capped_ratio
from specsim.traces._checksums import decode
from specsim.traces._format import DTYPES, AnyColumns, Columns, Layout, rounding


def drafted_probabilities(columns: AnyColumns, layout: Layout, slack: float = 0.0) -> tuple[Floats, Floats]:
    """Bounds [2, S, γ] on p(x) and q(x) of the drafted tokens x of S whole steps; the upper ones are
    positive.

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
