"""The output of importers: the steps of a log, and their common properties."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from specsim.core._progress import Progress
from specsim.core._types import MOST_TOKENS, Floats, Ints
from specsim.core.distributions import TOLERANCE

#: Bytes read of a column at a time.
CHUNK_BYTES = 8 * 2**20


class Source(NamedTuple):
    """The input of an importer."""

    path: Path  #: a file or folder
    draft: Path | None  #: the draft's file, if there are two
    vocab_size: int | None
    scratch: IO[bytes]  #: a temporary file
    tell: Progress  #: takes the bytes read and their total, from an importer that reads all at first


class Step(NamedTuple):
    """The arguments of `TraceWriter.append`, and their place in the source."""

    place: str
    context: int
    tokens: Any
    accepted: int | None
    p: Any
    q: Any


class Listings(NamedTuple):
    """Truncated rows, one after the other: row i has the next lengths[i] tokens and probabilities."""

    lengths: Ints
    tokens: Ints
    values: Floats


class Places(NamedTuple):
    """Consecutive places of a text, truncated: steps without drafts, for `TraceWriter.extend`."""

    contexts: list[int]
    tokens: Ints
    p: Listings
    q: Listings
    steps: Iterator[Step]  #: the same one by one, for an error that names the place


class Column(Protocol):
    """An array on disk, read in slices of the first axis, in order fastest; a memory map is one."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    def __getitem__(self, rows: slice, /) -> NDArray[Any]: ...


class Logged(NamedTuple):
    """A log: its layout, the number of steps, an iterator of them, and facts for the provenance."""

    vocab_size: int
    gamma: int
    top: int | None
    flags: bool
    bonus: bool
    total: int
    steps: Iterator[Step] | Iterator[Places]
    facts: dict[str, Any]
    columns: Mapping[str, Column] = {}  #: arrays, to report all wrong rows
    files: list[dict[str, Any]] | None = None  #: name, size and SHA-256 of each, if they are known already


def from_columns(columns: Mapping[str, Column], source: Source) -> Logged:
    """The steps of arrays: draft_tokens [N, γ], p [N, γ+1, V], q [N, γ+1, V] or [N, γ, V]; optionally
    accepted [N] and context [N] (by default each step is a document); with p_tokens and q_tokens of the
    shapes of p and q, these are the probabilities of k tokens each, padded with -1."""
    missing = sorted({"draft_tokens", "p", "q"} - columns.keys())
    if missing:
        raise ValueError(
            f"{source.path}: has no array {', '.join(missing)}, but {', '.join(sorted(columns)) or 'none'}; "
            "give draft_tokens [N, γ], p [N, γ+1, V], q [N, γ+1, V] or [N, γ, V]"
        )
    shape = columns["draft_tokens"].shape
    if len(shape) != 2 or shape[1] < 1:
        raise ValueError(f"{source.path}, draft_tokens: shape {shape}; give [N, γ] with γ ≥ 1")
    steps, gamma = shape
    width = columns["p"].shape[-1] if columns["p"].shape else 0
    bonus = columns["q"].shape[1:2] != (gamma,)
    rows = {"p": (steps, gamma + 1, width), "q": (steps, gamma + bonus, width)}
    truncated = "p_tokens" in columns or "q_tokens" in columns
    wanted = rows | {"accepted": (steps,), "context": (steps,)}
    if truncated:
        wanted |= {"p_tokens": rows["p"], "q_tokens": rows["q"]}
        if not {"p_tokens", "q_tokens"} <= columns.keys():
            raise ValueError(f"{source.path}: has one of p_tokens and q_tokens; give both")
    for name, expected in wanted.items():
        if name in columns and columns[name].shape != expected:
            vocabulary = ", one vocabulary for p and q" if name == "q" else ""
            raise ValueError(
                f"{source.path}, {name}: shape {columns[name].shape} beside draft_tokens {shape}; give "
                f"{expected}{vocabulary}"
            )
    ids = ("draft_tokens", "p_tokens", "q_tokens") if truncated else ("draft_tokens",)
    for name in ids:
        if columns[name].dtype.kind not in "iu":
            raise ValueError(f"{source.path}, {name}: {columns[name].dtype} values; give integers, token ids")
    vocab_size = source.vocab_size if truncated else width
    if not vocab_size:
        vocab_size = 1 + max(check_id(_largest(columns[name]), f"{source.path}, {name}") for name in ids)
    found = _steps({n: columns[n] for n in ("draft_tokens", *wanted) if n in columns}, source.path)
    top, flags = width if truncated else None, "accepted" in columns
    return Logged(vocab_size, gamma, top, flags, bonus, steps, found, {}, columns)


def check_id(token: int, place: str) -> int:
    """`token`; ValueError, with the `place`, if it is too large for a trace."""
    if token >= MOST_TOKENS:
        raise ValueError(f"{place}: token id {token} is too large; give ids below {MOST_TOKENS}")
    return token


def _steps(columns: Mapping[str, Column], path: Path) -> Iterator[Step]:
    for first, parts in _read_chunks(columns):
        for i, tokens in enumerate(parts["draft_tokens"]):
            rows: list[Any] = [as_computed(parts[name][i]) for name in "pq"]
            if "p_tokens" in parts:
                pairs = (zip(parts[f"{name}_tokens"][i], rows[k], strict=True) for k, name in enumerate("pq"))
                rows = [[(ids[ids >= 0], row[ids >= 0]) for ids, row in pair] for pair in pairs]
            context = parts["context"][i] if "context" in parts else first + i
            accepted = parts["accepted"][i] if "accepted" in parts else None
            yield Step(f"{path}, step {first + i}", context, tokens, accepted, *rows)


def as_computed(rows: NDArray[Any]) -> NDArray[Any]:
    """`rows`, as float32 if they are float64 and have float32 values only: so they were computed."""
    if rows.dtype != np.float64:
        return rows
    with np.errstate(over="ignore", under="ignore"):
        narrow = rows.astype(np.float32)
    return narrow if np.array_equal(narrow, rows, equal_nan=True) else rows


def _read_chunks(columns: Mapping[str, Column]) -> Iterator[tuple[int, dict[str, NDArray[Any]]]]:
    steps = next(iter(columns.values())).shape[0]
    step_bytes = sum(int(np.prod(column.shape[1:])) * column.dtype.itemsize for column in columns.values())
    size = max(1, CHUNK_BYTES // max(1, step_bytes))
    for first in range(0, steps, size):
        rows = slice(first, min(first + size, steps))
        yield first, {name: np.asarray(column[rows]) for name, column in columns.items()}


def _largest(column: Column) -> int:
    return max((int(part["x"].max(initial=-1)) for _, part in _read_chunks({"x": column})), default=-1)


def report_wrong_sums(columns: Mapping[str, Column]) -> str | None:
    """The number of rows of p and q with wrong sums, and the worst; None without any."""
    count, worst = 0, (0.0, "")
    for name in ("p", "q"):
        for first, part in _read_chunks({name: columns[name]}):
            rows = as_computed(part[name])
            off = np.abs(rows.sum(axis=-1, dtype=np.float64) - 1.0)
            off = np.where(np.isnan(off), np.inf, off)
            wrong = off > TOLERANCE.get(rows.dtype, 0.0)
            count += int(wrong.sum())
            step, row = np.unravel_index(int(off.argmax()), off.shape)
            if wrong.any() and off[step, row] > worst[0]:
                worst = float(off[step, row]), f"{name}, step {first + step}, row {row}"
    return f"{count} rows do not sum to 1, the worst is off by {worst[0]:.3g} ({worst[1]})" if count else None
