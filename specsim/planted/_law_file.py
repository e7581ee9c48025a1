"""`law.npz`: the laws of a target and its draft on disk, and the digest of laws and weights."""

import hashlib
from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specsim.core._arrays import UNREADABLE, read_arrays
from specsim.core._files import atomic_write, check_file
from specsim.planted._law import AdditiveLogits, Law, Logits, TableLogits

MODELS = ("target", "draft")

Arrays = dict[str, NDArray[Any]]


def write_laws(path: Path, laws: tuple[Law, Law]) -> None:
    with atomic_write(path) as temporary, open(temporary, "wb") as file:
        np.savez_compressed(file, **law_arrays(laws))  # type: ignore[arg-type]


def law_arrays(laws: tuple[Law, Law]) -> Arrays:
    """The arrays of both laws. Logits are multiples of 1/16 below 2^13, so that float32 holds them."""
    shared = laws[0]
    arrays: Arrays = {
        "vocab_size": np.array(shared.vocab_size),
        "offsets": np.array(shared.offsets, dtype=np.int64),
        "openers": np.array(shared.openers, dtype=np.int64),
    }
    for name, law in zip(MODELS, laws, strict=True):
        for part, values in vars(law.logits).items():
            arrays[f"{name}_{part}"] = values.astype(np.float32)
    return arrays


def read_laws(path: Path) -> tuple[Law, Law]:
    """The laws in `path`. Raises ValueError if it holds none."""
    check_file(path)
    try:
        arrays = read_arrays(path)
        target, draft = (_law(arrays, name) for name in MODELS)
    except UNREADABLE as error:
        raise ValueError(f"{path}: damaged, or not a file of laws ({error}); plant it again") from error
    return target, draft


def _law(arrays: Arrays, name: str) -> Law:
    offsets, openers = (tuple(int(value) for value in arrays[part]) for part in ("offsets", "openers"))
    return Law(int(arrays["vocab_size"]), offsets, openers, _logits(arrays, name))


def _logits(arrays: Arrays, name: str) -> Logits:
    if f"{name}_table" in arrays:
        return TableLogits(arrays[f"{name}_table"].astype(np.float64))
    base, weights = (arrays[f"{name}_{part}"].astype(np.float64) for part in ("base", "weights"))
    return AdditiveLogits(base, weights)


def digest_of(laws: tuple[Law, Law], weights: Iterable[Mapping[str, NDArray[Any]]]) -> str:
    """The SHA-256 of the names, types, shapes and values of all arrays of the laws and of the weights."""
    found = hashlib.sha256()
    for part in chain([law_arrays(laws)], weights):
        for name, array in sorted(part.items()):
            found.update(f"{name} {array.dtype.str} {array.shape};".encode())
            found.update(np.ascontiguousarray(array).data)
    return found.hexdigest()
