"""Files of tensors: safetensors, written atomically; checkpoints that PyTorch pickled; archives of NumPy."""

import math
import os
import pickle
import tokenize
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any
from zipfile import BadZipFile, is_zipfile

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from specsim.core._files import PathLike, atomic_write, check_file, open_file

#: The types of a safetensors header.
TYPES: dict[str, np.dtype[Any]] = {
    **{f"F{8 * size}": np.dtype(f"<f{size}") for size in (8, 4, 2)},
    **{f"{kind}{8 * size}": np.dtype(f"<{kind.lower()}{size}") for kind in "IU" for size in (8, 4, 2, 1)},
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "BOOL": np.dtype("?"),
}


def save_tensors(
    path: PathLike, arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, str] | None = None
) -> bytes:
    """Write `arrays` to `path`, and return its header; OSError, naming it, if it cannot be written."""
    from safetensors.numpy import save

    plain = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    content = save(plain, dict(metadata) if metadata else None)
    with atomic_write(path) as temporary:
        temporary.write_bytes(content)
    return content[: 8 + int.from_bytes(content[:8], "little")]


def read_tensors(
    path: PathLike, endings: tuple[str, ...] = ("",)
) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """The arrays in the file `path`, or those whose names have one of the `endings`, and the metadata. Raises
    ValueError for another file, and MemoryError for arrays that are larger than the memory."""
    from safetensors import SafetensorError, safe_open

    check_file(path)
    if str(path).endswith(".bin"):
        return _read_pickled(path, endings), {}
    try:
        with safe_open(path, "np") as file:
            names = [name for name in [*file.keys()] if name.endswith(endings)]  # it is no mapping
            parts = [(TYPES[one.get_dtype()], one.get_shape()) for one in map(file.get_slice, names)]
            if (size := sum(math.prod(shape, start=dtype.itemsize) for dtype, shape in parts)) > MOST_BYTES:
                raise MemoryError(f"{path} has {size / 2**30:,.1f} GiB of arrays")
            return {name: file.get_tensor(name) for name in names}, file.metadata() or {}
    except (SafetensorError, OSError, ValueError, TypeError, LookupError, AttributeError) as error:
        raise ValueError(f"{path}: not a safetensors file, or damaged ({error}); write it again") from error


def _read_pickled(path: PathLike, endings: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    """The arrays that PyTorch pickled in a file; nothing else in it is created or run."""
    save = "save it as safetensors"
    try:
        import torch
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"{path}: PyTorch wrote it; pip install torch, or {save}") from error
    if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 6):  # those run what a file says
        raise ValueError(f"{path}: torch {torch.__version__} may run what is in it; install 2.6, or {save}")
    try:
        read = torch.load(path, map_location="cpu", weights_only=True, mmap=is_zipfile(path))
        return {name: tensor.numpy() for name, tensor in read.items() if name.endswith(endings)}
    except (*UNREADABLE, pickle.UnpicklingError) as error:
        raise ValueError(f"{path}: more than tensors, or damaged ({type(error).__name__}); {save}") from error


# NumPy's archives of arrays.

#: What damaged or foreign files make NumPy, zipfile, and the reading of their arrays raise.
UNREADABLE = (
    ArithmeticError, AttributeError, EOFError, LookupError, OSError, NotImplementedError, RuntimeError,
    SyntaxError, TypeError, ValueError, BadZipFile, tokenize.TokenError, zlib.error,
)  # fmt: skip


#: The memory of this machine, where it tells: no archive may unpack to more.
MOST_BYTES = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 2**36


def write_arrays(path: PathLike, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write `arrays` to one compressed `.npz` at exactly `path`."""
    with atomic_write(path) as temporary, open(temporary, "wb") as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]


def read_arrays(path: PathLike) -> dict[str, NDArray[Any]]:
    """The arrays in the `.npz` file `path`, without objects. Raises `UNREADABLE`, and as `open_file`."""
    with open_file(path) as file:
        archive = np.load(file, allow_pickle=False)
        check_unique("array", archive.files)
        size = sum(one.file_size for one in archive.zip.infolist())
        if size > MOST_BYTES:
            raise ValueError(f"{size / 2**30:,.1f} GiB of arrays, and less memory; give fewer")
        return dict(archive.items())


def check_unique(what: str, names: Sequence[str]) -> None:
    """Raise ValueError, naming it, for a name that is there twice."""
    if twice := [name for name, number in Counter(names).items() if number > 1]:
        raise ValueError(f"{what} {twice[0]!r} is in it {names.count(twice[0])} times; keep one")
