"""Names of types that several packages share."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Token ids as arrays hold them.
TokenArray = NDArray[np.int32]

#: A pmf over the vocabulary in plain Python, of Fractions or floats: what the law of a rule reads.
Row = Sequence[Any]
Rows = Sequence[Row]
#: The probability of stopping at each node, and the pmf of the token after it; of a law at one node, that of
#: accepting each child, and the pmf of the token that follows if none is.
StepLaw = tuple[list[Any], list[Any]]

#: Token ids, in the order of the text.
Tokens = tuple[int, ...]

#: The largest vocabulary: token ids are stored as int32.
MOST_TOKENS = 2**31 - 1


def dtype_of(name: str) -> np.dtype[Any]:
    """The NumPy dtype of that name, bfloat16 included."""
    if name == "bfloat16":  # NumPy has no such type of its own
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)
