"""Attention heads that look at one position: a distance back, or at the opener.

With rotary position embeddings the score of a query at one position and a key δ positions before it is
Σ_i a·cos(δ·ω_i - φ_i), where φ_i is the angle by which the query was turned in plane i beforehand. With
φ_i = d·ω_i, and keys that are the same everywhere, it is largest at δ = d. The weights of all other positions
are below e^-40 of that one's, also after the rounding of bfloat16.
"""

from dataclasses import dataclass

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from specsim.core._types import Floats

HEAD_SIZE = 64
THETA = 10000.0
FREQUENCIES = THETA ** (-np.arange(HEAD_SIZE // 2) / (HEAD_SIZE // 2))
#: Least difference of the scores of the position looked at and any other.
SEPARATION = 40.0
#: Largest amplitude of a plane: scores of 32 planes, 8 times as large before they are scaled, fit in float16.
MOST_AMPLITUDE = 128
#: Bound on the error of the difference of two scores, in amplitudes for each plane, where queries, keys,
#: cosines, products and scores are rounded to the 8 bits of bfloat16.
ROUNDING = 2.0**-5


@dataclass(frozen=True, eq=False)
class Head:
    """A query and a key, each [64]; dimensions i and i + 32 are plane i.

    All keys are alike, or those of all tokens but openers are 0."""

    query: Floats
    key: Floats


def look_back(distance: int, context: int) -> Head:
    """A head that looks `distance` positions back, in texts of up to `context` positions.

    It uses as many of the fastest planes as make the position differ most from all others."""
    others = np.delete(np.arange(context), distance) - distance
    margins = (1.0 - np.cos(others[:, None] * FREQUENCIES)).cumsum(axis=1).min(axis=0)
    planes, amplitude = _best(margins, f"the token {distance} back")
    return _head(np.arange(planes), amplitude, distance * FREQUENCIES[:planes])


def look_at_opener(context: int) -> Head:
    """A head whose keys are 0 but for openers. It uses the slowest planes, which turn least on the way."""
    slowest = FREQUENCIES[::-1]
    margins = np.cos(np.arange(context)[:, None] * slowest).cumsum(axis=1).min(axis=0)
    planes, amplitude = _best(margins, "the opener")
    return _head(len(slowest) - 1 - np.arange(planes), amplitude, np.zeros(planes))


def _best(margins: Floats, what: str) -> tuple[int, int]:
    """How many planes to use, and the amplitude: a power of two, which is exact in every dtype.

    `margins` [32] are differences of scores at amplitude 1 for each number of planes."""
    sure = margins - ROUNDING * np.arange(1, len(margins) + 1)
    best = int(sure.argmax())
    for amplitude in 2 ** np.arange(int(MOST_AMPLITUDE).bit_length()):
        if amplitude * sure[best] >= SEPARATION:
            return best + 1, int(amplitude)
    raise ValueError(
        f"context: an attention head cannot distinguish {what} from the other positions of this context; "
        "choose a shorter one"
    )


def _head(planes: NDArray[np.int64], amplitude: int, angles: Floats) -> Head:
    query, key = np.zeros(HEAD_SIZE), np.zeros(HEAD_SIZE)
    scale = amplitude * np.sqrt(HEAD_SIZE)  # attention divides scores by the root of the head's size
    query[planes] = scale * np.cos(angles)
    query[planes + HEAD_SIZE // 2] = -scale * np.sin(angles)
    key[planes] = 1.0
    return Head(query.astype(ml_dtypes.bfloat16).astype(np.float64), key)
