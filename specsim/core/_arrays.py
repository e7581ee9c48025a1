"""Reading NumPy's archives of arrays."""

import tokenize
import zlib
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from specsim.core._files import PathLike, open_file

#: What damaged or foreign files make NumPy, zipfile, and the reading of their arrays raise.
UNREADABLE = (
    ArithmeticError, AttributeError, EOFError, LookupError, OSError, NotImplementedError, RuntimeError,
    SyntaxError, TypeError, ValueError, BadZipFile, tokenize.TokenError, zlib.error,
)  # fmt: skip


def read_arrays(path: PathLike) -> dict[str, NDArray[Any]]:
    """The arrays in the `.npz` file `path`, without objects. Raises `UNREADABLE`, and as `open_file`."""
    with open_file(path) as file:
        return dict(np.load(file, allow_pickle=False).items())
