"""Reading NumPy's archives of arrays."""

import tokenize
import zlib
from collections import Counter
from collections.abc import Sequence
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
        archive = np.load(file, allow_pickle=False)
        check_unique("array", archive.files)
        return dict(archive.items())


def check_unique(what: str, names: Sequence[str]) -> None:
    """Raise ValueError, naming it, for a name that is there twice."""
    if twice := [name for name, number in Counter(names).items() if number > 1]:
        raise ValueError(f"{what} {twice[0]!r} is in it {names.count(twice[0])} times; keep one")
