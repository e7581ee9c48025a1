"""Writing a trace; a crash loses at most the shard that was not yet written."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import ArrayLike, NDArray

from specsim.core._files import check_new_folder, make_folder
from specsim.core._tensors import save_tensors
from specsim.core._types import MOST_TOKENS, check_choice, check_count, check_unmasked, checked, said_of
from specsim.core.distributions import TOLERANCE, check_probabilities, check_rows, check_tokens
from specsim.traces import _format
from specsim.traces._checksums import FAULTS, SOUND, measure
from specsim.traces._steps import Listings, Places

#: The default size of a shard, which bounds the loss in a crash and the memory of the writer.
SHARD_BYTES = 64 * 2**20


@checked
@contextmanager
def writer(
    out: str | Path,
    *,
    vocab_size: int,
    gamma: int,
    dtype: str = "float32",
    top: int | None = None,
    flags: bool = True,
    bonus: bool = True,
    rows_per_shard: int | None = None,
    provenance: Mapping[str, Any] | None = None,
) -> "Iterator[TraceWriter]":
    """Write a trace, one step at a time, as a context manager.

    Shards and manifest are written to temporary files, synced and renamed. If the block raises, the steps so
    far are written first.

    Parameters
    ----------
    out : path
        A new or empty folder.
    vocab_size : int
        V, 1 … 2³¹ - 1.
    gamma : int
        Drafted tokens per step, ≥ 1; 0, without flags, for a text in which nothing was drafted.
    dtype : {"float32", "float16", "bfloat16"}
        How rows are stored.
    top : int, optional
        k, for rows truncated to at most the k most probable tokens.
    flags, bonus : bool
        Whether it is known which drafted tokens were accepted, and q at the bonus position.
    rows_per_shard : int, optional
        A shard has the whole steps that fit in this number of rows, by default in 64 MiB.
    provenance : mapping, optional
        Facts that JSON can hold.

    Yields
    ------
    TraceWriter

    Raises
    ------
    FileExistsError
        If the folder is not empty.
    ValueError, TypeError
        For arguments out of range.
    OSError
        If a shard cannot be written; earlier ones stay readable.

    Examples
    --------
    >>> import tempfile
    >>> from specsim import open_trace
    >>> from specsim.traces import summarise, writer
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with writer(folder, vocab_size=2, gamma=1) as trace:
    ...         trace.append(context=0, tokens=[0], accepted=1, p=[[0.5, 0.5]] * 2, q=[[0.75, 0.25]] * 2)
    ...     summarise(open_trace(folder)).alpha_context
    0.75
    """
    if check_count("vocab_size", vocab_size) > MOST_TOKENS:
        raise ValueError(f"vocab_size: {vocab_size} exceeds {MOST_TOKENS}; ids are stored as int32")
    if check_count("gamma", gamma, int(flags)) == 0 and not bonus:
        raise ValueError("gamma: 0 leaves no row of q without the bonus position; log q there")
    check_choice("dtype", dtype, _format.DTYPES)
    top = None if top is None else check_count("top", top)
    layout = _format.Layout(int(vocab_size), int(gamma), dtype, top, bool(flags), bool(bonus))
    stride = layout.rows_per_step
    if rows_per_shard is None:
        steps = max(1, SHARD_BYTES // (layout.row_bytes * stride))
    else:  # at least the gamma + 1 rows of one step
        steps = check_count("rows_per_shard", rows_per_shard, stride) // stride
    # raises here rather than after an hour of recording
    sink = TraceWriter(out, layout, steps, _as_json(dict(provenance or {})))
    try:
        yield sink
    finally:
        sink.flush()
        sink.closed = True
    sink.write_manifest(sink.shards, complete=True)


#: Rows of a truncated trace: token ids and probabilities of each.
Pair = tuple[ArrayLike, ArrayLike]
Rows = Sequence[Pair]


class TraceWriter:
    """Yielded by `writer`; `append` adds one step."""

    def __init__(
        self, path: str | Path, layout: _format.Layout, steps_per_shard: int, provenance: dict[str, Any]
    ):
        self.layout = layout
        self.provenance = provenance
        self.steps = 0
        self.shards: list[dict[str, Any]] = []
        rows = steps_per_shard * layout.rows_per_step
        self._buffer = layout.named({n: np.empty(shape, t) for n, (t, shape) in layout.columns(rows).items()})
        check_new_trace(path)
        self.path = make_folder(path)  # after the buffer, so that a lack of memory leaves no folder
        try:  # of two writers that find it empty at once, one makes the manifest
            (self.path / _format.MANIFEST).open("x").close()
        except FileExistsError:
            why = "another writer has begun a trace; give an empty folder"
            raise FileExistsError(f"{self.path}: {why}") from None
        self.closed = False
        self.write_manifest([], complete=False)

    @checked
    def append(
        self, context: int, tokens: ArrayLike, accepted: int | None, p: ArrayLike | Rows, q: ArrayLike | Rows
    ) -> None:
        """Add a step. Raises ValueError or TypeError, with row, token and value; nothing is written then.

        Parameters
        ----------
        context : int
            The id of the document or starting context.
        tokens : array_like of int, shape [γ]
            The drafted tokens; for γ = 0 the token that followed in the text, or empty.
        accepted : int or None
            How many of them were accepted, 0 … γ; None in a trace without flags.
        p, q : array_like, shape [γ+1, V]
            The rows of target and draft; q is [γ, V] without the bonus position. Rows in the trace's dtype
            are stored bit for bit, others normalised as float64 and rounded. In a truncated trace each row is
            a pair (token ids, probabilities) of at most k of the most probable tokens, perhaps with the
            drafted one; the rest is the tail."""
        if self.closed:
            raise ValueError(f"{self.path}: the trace is closed; append steps inside its `with`")
        layout = self.layout
        drafted = check_tokens(tokens, layout.vocab_size, "tokens")
        if drafted.shape != (layout.gamma,) and (layout.gamma or drafted.shape != (1,)):
            raise ValueError(f"tokens: shape {drafted.shape}; give ({layout.gamma},), one per drafted token")
        marks = self._check_accepted(accepted)
        document = check_count("context", context, -(2**63))
        start = self._pending * layout.rows_per_step
        rows = _format.take(self._buffer, slice(start, start + layout.rows_per_step))
        rows.step[:] = self.steps
        rows.context[:] = document
        rows.position[:] = np.arange(layout.gamma + 1)
        rows.token[:] = _format.NONE
        rows.token[: drafted.size] = drafted
        rows.accepted[:] = marks
        if isinstance(rows, _format.Columns):
            rows.p[:] = self._check_rows(p, "p", layout.rows_per_step)
            rows.q[-1] = rows.p[-1]  # without the bonus; else it is overwritten
            logged = layout.gamma + layout.bonus
            rows.q[:logged] = self._check_rows(q, "q", logged)
            given = np.asarray(q)
            listing: list[Any] = [([x], [given[i, x]]) for i, x in enumerate(drafted[: layout.gamma])]
        else:
            listing = self._fill_truncated(rows.p_tokens, rows.p, p, "p")
            listing = self._fill_truncated(rows.q_tokens, rows.q, q, "q")
        smallest = ml_dtypes.finfo(rows.q.dtype).smallest_subnormal
        for row, token in enumerate(drafted[: layout.gamma]):
            _check_support(row, token, *listing[row])
            own = token if isinstance(rows, _format.Columns) else rows.q_tokens[row] == token
            # it was possible, and must not be rounded to 0
            rows.q[row, own] = np.maximum(rows.q[row, own], smallest)
        found = measure(rows, np.array([self.steps]), layout)  # checked as a reader does
        if found.fault.any():
            row = int(np.argmax(found.fault != SOUND))
            raise ValueError(f"step {self.steps}, row {row}: {FAULTS[int(found.fault[row])]}")
        rows.checksum[:] = found.checksum
        self.steps += 1
        if self._pending * layout.rows_per_step == self._buffer.step.size:
            self.flush()

    def extend(self, places: Places) -> bool:
        """Add all of `places` to a truncated trace of a text; False if `append` might refuse one of them."""
        rows = self._sound_rows(places)
        if rows is None:
            return False
        done, size = 0, len(places.tokens)
        while done < size:
            start = self._pending
            count = min(size - done, self._buffer.step.size - start)
            pairs: Any = zip(self._buffer, rows, strict=True)
            for column, given in pairs:
                column[start : start + count] = given[done : done + count]
            done += count
            self.steps += count
            if start + count == self._buffer.step.size:
                self.flush()
        return True

    def _sound_rows(self, places: Places) -> _format.TruncatedColumns | None:
        """The columns of `places`, or None where one of them may have to be refused."""
        contexts, tokens = np.asarray(places.contexts), places.tokens
        p, q = (_listed(one, self.layout) for one in (places.p, places.q))
        outside = (tokens < 0) | (tokens >= self.layout.vocab_size)
        if p is None or q is None or contexts.dtype != np.int64 or outside.any():
            return None
        steps = np.arange(self.steps, self.steps + tokens.size)
        position, accepted = np.zeros(tokens.size, np.int32), np.full(tokens.size, _format.NONE, np.int8)
        labels = steps, contexts, position, tokens.astype(np.int32), accepted
        rows = _format.TruncatedColumns(*labels, *p, *q, np.zeros(tokens.size, np.uint64))
        found = measure(rows, steps, self.layout)
        return None if found.fault.any() else rows._replace(checksum=found.checksum)

    @property
    def _pending(self) -> int:
        """Steps in the buffer."""
        return self.steps - sum(shard["rows"] for shard in self.shards) // self.layout.rows_per_step

    def flush(self) -> None:
        """Write the steps in the buffer as a shard; called at the end, and when it is full."""
        if not (rows := self._pending * self.layout.rows_per_step):
            return
        columns = _format.take(self._buffer, slice(0, rows))
        path = self.path / f"shard-{len(self.shards):05d}.safetensors"
        try:
            header = save_tensors(path, columns._asdict())
        except OSError as error:
            raise OSError(f"{error}; the {self.steps - self._pending} steps before it can be read") from None
        sha256 = _format.digest(header, columns.checksum)
        entry = {"file": path.name, "rows": rows, "bytes": path.stat().st_size, "sha256": sha256}
        shards = [*self.shards, entry]
        self.write_manifest(shards, complete=False)
        self.shards = shards

    def write_manifest(self, shards: list[dict[str, Any]], *, complete: bool) -> None:
        """Replace the manifest by one that lists `shards`."""
        content = {"complete": complete, "provenance": self.provenance, "shards": shards}
        _format.write_manifest(self.path, self.layout, content)

    def _check_accepted(self, accepted: int | None) -> list[int]:
        """The column `accepted` of a step: ones, a zero at the rejection, `NONE` after it."""
        gamma, tested = self.layout.gamma, list[int]()
        if (accepted is None) is self.layout.flags:
            kind, wanted = ("with", "a number") if self.layout.flags else ("without", "None")
            raise ValueError(f"accepted: {accepted} in a trace {kind} flags; give {wanted}")
        if accepted is not None:
            passed = check_count("accepted", accepted, 0, gamma)
            tested = [1] * passed + [0] * (passed < gamma)
        return tested + [_format.NONE] * (gamma + 1 - len(tested))

    def _check_rows(self, rows: Any, name: str, number: int) -> NDArray[Any]:
        """The `number` rows [number, V] in the stored dtype."""
        wanted = (number, self.layout.vocab_size)
        given = _array(rows, name, f"shape {wanted}")
        if given.shape != wanted:
            count = "gamma + 1" if number > self.layout.gamma else "gamma"
            raise ValueError(f"{name}: shape {given.shape}; give {wanted}, {count} rows of length V")
        stored = _format.DTYPES[self.layout.dtype]
        checked = check_rows(given, name)
        # abs: stored zeros have no sign
        return np.abs(given if given.dtype == stored else checked.astype(stored))

    def _fill_truncated(
        self, tokens: NDArray[np.int32], values: NDArray[Any], rows: Any, name: str
    ) -> list[Pair]:
        """Fill tokens and values [γ + 1, k] from pairs (token ids, probabilities), and return these."""
        tokens[:], values[:] = _format.NONE, 0
        try:
            pairs = [(listed, probabilities) for listed, probabilities in rows]
        except (TypeError, ValueError):
            raise ValueError(
                f"{name}: is not a pair (token ids, probabilities) for each row of a truncated trace; give "
                "pairs, or open the writer without top"
            ) from None
        if name == "q" and not self.layout.bonus:
            pairs.append(((), ()))
        if len(pairs) != len(tokens):
            raise ValueError(f"{name}: {len(pairs)} rows; give {len(tokens)}")
        for row, (listed, probabilities) in enumerate(pairs):
            place = f"{name}, row {row}"
            ids = check_tokens(listed, self.layout.vocab_size, place)
            given = _array(probabilities, place, "a probability for each token")
            if ids.ndim != 1 or given.shape != ids.shape or ids.size > tokens.shape[1]:
                most = f"give as many of each, at most {tokens.shape[1]}"
                raise ValueError(f"{place}: tokens {ids.shape} and probabilities {given.shape}; {most}")
            if not ids.size:
                continue
            order = np.argsort(ids)
            ids, weights = ids[order], check_probabilities(given, place)[order]
            if (twice := np.flatnonzero(ids[1:] == ids[:-1])).size:
                raise ValueError(f"{place}: token {ids[twice[0]]} is listed twice; list it once")
            tolerance = TOLERANCE.get(given.dtype, TOLERANCE[np.dtype(np.float64)])
            tolerance = max(tolerance, TOLERANCE[_format.DTYPES[self.layout.dtype]])
            if (mass := float(weights.sum())) > 1.0 + tolerance:
                raise ValueError(
                    f"{place}: the listed tokens sum to {mass:.12g}; give at most 1, up to {tolerance:.2g}"
                )
            tokens[row, : ids.size] = ids
            values[row, : ids.size] = np.abs(weights).astype(values.dtype)
        return pairs


def _listed(listings: Listings, layout: _format.Layout) -> tuple[NDArray[np.int32], NDArray[Any]] | None:
    """Tokens, rising, and values [R, k] as stored; None where a row may have to be refused."""
    lengths, tokens, values = listings
    sound = (tokens >= 0) & (tokens < layout.vocab_size) & (values >= 0) & (values < np.inf)
    width = layout.top
    assert width is not None
    if not sound.all() or (lengths > width).any():
        return None
    filled = np.arange(width) < lengths[:, None]
    keys = np.full(filled.shape, MOST_TOKENS << 32, np.int64)  # padding comes last
    keys[filled] = tokens << 32
    keys |= np.arange(width)
    keys.sort(axis=1)
    weights = np.zeros(filled.shape)
    weights[filled] = values
    weights = np.take_along_axis(weights, keys & 0xFFFFFFFF, axis=1)
    keys >>= 32
    twice = (keys[:, 1:] == keys[:, :-1]) & filled[:, 1:]
    stored = _format.DTYPES[layout.dtype]
    tolerance = max(TOLERANCE[np.dtype(np.float64)], TOLERANCE[stored])
    # `append` adds up in another order, and judges what is so close
    if twice.any() or (weights.sum(axis=1) > 1.0 + tolerance * (1 - 1e-3)).any():
        return None
    return np.where(filled, keys, _format.NONE).astype(np.int32), np.abs(weights).astype(stored)


def _array(values: Any, name: str, expected: str) -> NDArray[Any]:
    check_unmasked(name, values)
    try:
        return np.asarray(values)
    except ValueError:  # NumPy's message does not name the array
        raise ValueError(f"{name}: rows differ in length; give {expected}") from None


def _check_support(row: int, token: int, listed: Any, probabilities: Any) -> None:
    """Raise ValueError if a drafted token has probability 0; one that is not listed is in the tail."""
    weights = np.asarray(probabilities, dtype=np.float64)
    own = weights[np.asarray(listed) == token]
    if not (own[0] > 0 if own.size else weights.sum() < 1.0):
        raise ValueError(f"q, row {row}, token {token}: has probability 0, but was drafted; give its own row")


def _as_json(facts: dict[str, Any]) -> dict[str, Any]:
    """`facts` with NumPy's numbers as Python's. Raises TypeError or ValueError for what JSON cannot hold."""

    def number(value: Any) -> Any:
        if isinstance(value, np.generic):
            return value.item()
        raise TypeError(f"provenance: JSON cannot hold a {type(value).__name__}; give numbers and text")

    with said_of("provenance"):
        return json.loads(json.dumps(facts, allow_nan=False, default=number))


def check_new_trace(path: str | Path) -> None:
    """Raise FileExistsError or OSError unless a trace can be written to `path`, which is not made."""
    try:
        check_new_folder(path)
    except FileExistsError:
        if os.path.exists(Path(path, _format.MANIFEST)):
            raise FileExistsError(f"{path}: already holds a trace; give an empty folder") from None
        raise
