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

#: Token ids, in the order of the text.
Tokens = tuple[int, ...]
