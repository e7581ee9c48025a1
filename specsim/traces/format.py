"""The trace format: the columns of a shard, their types, and what rounding each dtype allows."""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from specsim.distributions import TOLERANCE

FORMAT = "specsim-trace"
VERSION = 1
VALUES = "probabilities"
MANIFEST = "manifest.json"

#: How p and q may be stored, and the name of each type in a safetensors header.
DTYPES: dict[str, np.dtype[Any]] = {
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
}
LABELS: dict[str, np.dtype[Any]] = {
    "step": np.dtype(np.int64),
    "context": np.dtype(np.int64),
    "position": np.dtype(np.int32),
    "token": np.dtype(np.int32),
    "accepted": np.dtype(np.int8),
}
CODES = {
    "int8": "I8",
    "int32": "I32",
    "int64": "I64",
    "uint64": "U64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
}

#: `token` and `accepted` at the bonus position; `accepted` also after a rejection.
NONE = -1


class Columns(NamedTuple):
    """The columns of R rows (R / (γ + 1) whole steps): views of a file, or copies of chosen rows."""

    step: NDArray[np.int64]  #: [R] 0, 1, 2, … through the trace
    context: NDArray[np.int64]  #: [R] the document or starting context that the step belongs to
    position: NDArray[np.int32]  #: [R] 0 … γ
    token: NDArray[np.int32]  #: [R] the drafted token, −1 at the bonus position
    accepted: NDArray[np.int8]  #: [R] 1 accepted, 0 rejected, −1 not tested
    p: NDArray[Any]  #: [R, V] the target's probabilities
    q: NDArray[Any]  #: [R, V] the draft's
    checksum: NDArray[np.uint64]  #: [R] of the row's other columns

    def take(self, rows: slice | NDArray[np.int64]) -> Columns:
        """The chosen rows: views for a slice, copies for an array of row numbers."""
        chosen: Any = (column[rows] for column in self)
        return Columns(*chosen)


class Layout(NamedTuple):
    """What every shard of a trace has in common."""

    vocab_size: int
    gamma: int
    dtype: str

    @property
    def rows_per_step(self) -> int:
        return self.gamma + 1

    @property
    def row_bytes(self) -> int:
        labels = sum(dtype.itemsize for dtype in LABELS.values())
        return labels + 8 + 2 * self.vocab_size * DTYPES[self.dtype].itemsize

    def columns(self, rows: int) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]]:
        """The dtype and shape of each column of a shard of `rows` rows."""
        dense = (DTYPES[self.dtype], (rows, self.vocab_size))
        labels = {name: (dtype, (rows,)) for name, dtype in LABELS.items()}
        return {**labels, "p": dense, "q": dense, "checksum": (np.dtype(np.uint64), (rows,))}


def rounding(layout: Layout) -> float:
    """A bound on |β error| from storing p and q in the dtype.

    Rounding to nearest moves an entry by at most u times itself, u the unit roundoff, or by half the smallest
    subnormal number where that is more; the minimum of two entries moves by no more than they do.
    """
    info = ml_dtypes.finfo(DTYPES[layout.dtype])
    return float(info.eps) / 2 + layout.vocab_size * float(info.smallest_subnormal) / 2


def sum_tolerance(layout: Layout) -> float:
    """How far from 1 a stored row's sum may be.

    What a writer may hand over, plus what rounding adds; twice, because the sum is taken in float32.
    """
    return 2 * (TOLERANCE[DTYPES[layout.dtype]] + rounding(layout))


def digest(header: bytes, checksums: NDArray[np.uint64]) -> str:
    """The SHA-256 of a shard: of its header and its rows' checksums, which cover the rest."""
    return hashlib.sha256(header + checksums.tobytes()).hexdigest()
