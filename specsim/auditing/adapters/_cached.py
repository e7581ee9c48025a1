"""Models for decoders with a cache: the rows at the last positions of the cached tokens.

The keys in the cache are the token ids, and rows are computed from the keys that the cache returns. A cache
that was not cropped, or was cropped in the wrong place, therefore changes the output."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from specsim.core.distributions import Floats
from specsim.models import Model


def last_rows(model: Model, held: ArrayLike, count: int) -> Floats:
    """The rows after each of the last `count` of the tokens `held` (integers [T]): float64 [count, V].

    Positions with too few tokens before them for the model to read get the uniform row: those are the first
    of a prompt, which no decoder samples from."""
    tokens = np.asarray(held, dtype=np.int64)
    rows = np.full((count, model.vocab_size), 1.0 / model.vocab_size)
    shortest = max(model.order, len(tokens) - count + 1)
    histories = [tokens[end - model.order : end] for end in range(shortest, len(tokens) + 1)]
    if histories:
        rows[count - len(histories) :] = model.rows(np.stack(histories))
    return rows
