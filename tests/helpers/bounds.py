"""The bounds on β of two truncated rows."""

import numpy as np

from specsim.core._kernels import interpreted
from specsim.traces._truncated import NO_TOKEN, bound_rows


def beta_bounds(p, q, token=-1):
    """The smallest and the largest β that two truncated rows allow; `token` is the drafted one, if any."""
    ends, mass, rows = np.empty((2, 1)), np.empty((2, 1)), []
    for tokens, probabilities in (p, q):
        order = np.argsort(tokens)
        listed = np.asarray(tokens)[order].astype(np.uint32)
        rows += [listed[None], np.asarray(probabilities, np.float64)[order][None]]
    drafted = np.array([token], np.int32).view(np.uint32)
    with interpreted():  # compiling does not pay off for one row
        bound_rows(*rows, drafted, NO_TOKEN, ends, mass, np.zeros(1, np.uint8))
    return float(ends[0, 0]), float(ends[1, 0])
