"""The trace format: the columns of a shard, their types, and what rounding each dtype allows.

Rows of p and q are *dense*, over the whole vocabulary, or *truncated* to the k tokens that were logged:
`p_tokens` and `q_tokens` list these in rising order, padded with -1. The tail is one minus the listed mass.
The listed tokens are the most probable ones, perhaps with the drafted token.

Without `flags` it was not logged which drafted tokens were accepted. Without `bonus` q was not logged at the
bonus position: a dense trace repeats p there, which is not used; a truncated one lists nothing. With γ = 0
nothing was drafted: every row is a position of a text, and `token` the token that followed (-1 if unknown).
"""

import hashlib
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from specsim.core._files import read_table, write_text
from specsim.core._json import read_sealed, sealed
from specsim.core._types import MOST_TOKENS, Ints, dtype_of
from specsim.core.distributions import TOLERANCE

DENSE, TRUNCATED = "probabilities", "top-k"

#: How p and q may be stored.
DTYPES = {name: dtype_of(name) for name in ("float32", "float16", "bfloat16")}
LABELS = {name: dtype_of(dtype) for name, dtype in read_table("kinds")["labels"].items()}
#: `token` and `accepted` at the bonus position, `accepted` after a rejection, padding of truncated rows.
NONE = -1


class Columns(NamedTuple):
    """The columns of R rows (R / (γ + 1) whole steps): views of a file, or copies of chosen rows."""

    step: Ints  #: [R] 0, 1, 2, … through the trace
    context: Ints  #: [R] the document or starting context that the step belongs to
    position: NDArray[np.int32]  #: [R] 0 … γ
    token: NDArray[np.int32]  #: [R] the drafted token, −1 at the bonus position
    accepted: NDArray[np.int8]  #: [R] 1 accepted, 0 rejected, −1 not tested
    p: NDArray[Any]  #: [R, V] the target's probabilities
    q: NDArray[Any]  #: [R, V] the draft's
    checksum: NDArray[np.uint64]  #: [R] of the row's other columns


class TruncatedColumns(NamedTuple):
    """The columns of R truncated rows, as `Columns`; p and q [R, k] are of the tokens [R, k] beside them."""

    step: Ints
    context: Ints
    position: NDArray[np.int32]
    token: NDArray[np.int32]
    accepted: NDArray[np.int8]
    p_tokens: NDArray[np.int32]  #: [R, k] rising, then −1
    p: NDArray[Any]  #: [R, k] the target's probabilities of these, padded with 0
    q_tokens: NDArray[np.int32]
    q: NDArray[Any]
    checksum: NDArray[np.uint64]


AnyColumns = Columns | TruncatedColumns


def take(columns: AnyColumns, rows: slice | Ints) -> AnyColumns:
    """The chosen rows: views for a slice, copies for an array of row numbers."""
    chosen: Any = (column[rows] for column in columns)
    return type(columns)(*chosen)


def reached_rows(accepted: NDArray[np.int8], stride: int) -> NDArray[np.bool_]:
    """[S, γ + 1] whether S steps reach each position: none is accepted after the first that is not."""
    reached = np.ones((accepted.size // stride, stride), np.bool_)
    np.equal(accepted.reshape(-1, stride)[:, :-1], 1, out=reached[:, 1:])
    return reached


class Layout(NamedTuple):
    """The properties that all shards of a trace share."""

    vocab_size: int
    gamma: int
    dtype: str
    top: int | None = None  #: the k of truncated rows, None if rows are dense
    flags: bool = True  #: whether it was logged which drafted tokens were accepted
    bonus: bool = True  #: whether q was logged at the bonus position

    @property
    def rows_per_step(self) -> int:
        return self.gamma + 1

    @property
    def row_bytes(self) -> int:
        return sum(dtype.itemsize * math.prod(shape) for dtype, shape in self.columns(1).values())

    def columns(self, rows: int) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]]:
        """The dtype and shape of each column of a shard of `rows` rows, in the order of the class."""
        labels = {name: (dtype, (rows,)) for name, dtype in LABELS.items()}
        values = (DTYPES[self.dtype], (rows, self.vocab_size if self.top is None else self.top))
        listed = (np.dtype(np.int32), values[1])
        entries = {"p_tokens": listed, "p": values, "q_tokens": listed, "q": values}
        if self.top is None:
            entries = {"p": values, "q": values}
        return {**labels, **entries, "checksum": (np.dtype(np.uint64), (rows,))}

    def named(self, columns: dict[str, NDArray[Any]]) -> AnyColumns:
        """The columns of a shard from its arrays by name."""
        return Columns(**columns) if self.top is None else TruncatedColumns(**columns)


def rounding(layout: Layout) -> float:
    """A bound on |β error| from the dtype; for truncated rows, of either end (docs/proofs.md)."""
    info = ml_dtypes.finfo(DTYPES[layout.dtype])
    entries = layout.vocab_size if layout.top is None else layout.top
    error = float(info.eps) / 2 + entries * float(info.smallest_subnormal) / 2
    return error if layout.top is None else 4 * error


def sum_tolerance(layout: Layout) -> float:
    """By how much a stored row's sum may differ from 1: twice the input tolerance and rounding."""
    return 2 * (TOLERANCE[DTYPES[layout.dtype]] + rounding(layout))


def digest(header: bytes, checksums: NDArray[np.uint64]) -> str:
    """The SHA-256 of a shard: of its header and its rows' checksums, which cover the rest."""
    found = hashlib.sha256(header)
    found.update(np.ascontiguousarray(checksums).data)
    return found.hexdigest()


# The manifest: a JSON object with the SHA-256 of its own content. Rows have checksums, and it has the SHA-256
# of each shard's header and checksums; V, γ, the dtype, the flags and the list of shards are in it alone. The
# hash is of the content, not of the bytes, so the file may be reformatted. It guards against accidents alone.

FORMAT = "specsim-trace"
VERSION = 2
MANIFEST = "manifest.json"


class Entries(NamedTuple):
    """A manifest, or an object in it; `get` checks the type of an entry."""

    file: Path
    values: dict[str, Any]

    def get(
        self,
        name: str,
        kind: type,
        what: str,
        fits: Callable[[Any], bool] = lambda value: True,
        default: object = None,
    ) -> Any:
        value = self.values.get(name, default)
        if type(value) is not kind or not fits(value):
            raise ValueError(f"{self.file}: damaged, {name} is {value!r}, not {what}")
        return value

    def count(self, name: str, least: int = 1) -> int:
        return self.get(name, int, f"a whole number ≥ {least}", lambda n: n >= least)

    def layout(self) -> Layout:
        values = self.values.get("values")
        if values not in (DENSE, TRUNCATED):
            raise ValueError(f"{self.file}: rows are {values!r}; only {DENSE!r} and {TRUNCATED!r} are read")
        flags, bonus = (self.get(name, bool, "true or false", default=True) for name in ("flags", "bonus"))
        words = f"a whole number from 1 to {MOST_TOKENS:,}"
        return Layout(
            vocab_size=self.get("vocab_size", int, words, lambda n: 1 <= n <= MOST_TOKENS),
            gamma=self.count("gamma", int(flags)),  # without drafts there is nothing to flag
            dtype=self.get("dtype", str, f"one of {', '.join(DTYPES)}", DTYPES.__contains__),
            top=self.count("top") if values == TRUNCATED else None,
            flags=flags,
            bonus=bonus,
        )


def write_manifest(folder: Path, layout: Layout, content: dict[str, Any]) -> None:
    """Replace the manifest in `folder`; `flags` and `bonus` are entries only if false, as in early traces."""
    shown = {"vocab_size": layout.vocab_size, "gamma": layout.gamma, "dtype": layout.dtype}
    rows = {"values": DENSE} if layout.top is None else {"values": TRUNCATED, "top": layout.top}
    lacking = {name: False for name in ("flags", "bonus") if not getattr(layout, name)}
    manifest = sealed({"format": FORMAT, "version": VERSION, **shown, **rows, **lacking, **content})
    write_text(folder / MANIFEST, json.dumps(manifest, indent=1) + "\n")


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read the manifest in `folder`; ValueError if it is missing, damaged or of another version."""
    file = folder / MANIFEST
    if not folder.exists():
        raise ValueError(f"{folder}: there is no such file or folder; give that of a trace")
    if not file.is_file():
        raise ValueError(f"{folder}: not a trace, it has no {MANIFEST}")
    remedy = "restore the file from a copy, or record or import the trace again"
    return read_sealed(file, FORMAT, VERSION, remedy)
