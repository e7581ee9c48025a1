"""Writing a trace; a crash loses at most the shard that was not yet written."""

from __future__ import annotations

import json
import operator
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import ArrayLike, NDArray

from specsim.core._files import atomic_write
from specsim.core._types import Ints
from specsim.core.distributions import TOLERANCE, check_probabilities, check_rows, check_tokens
from specsim.traces._checksums import FAULTS, SOUND, measure
from specsim.traces._format import (
    DENSE,
    DTYPES,
    MOST_TOKENS,
    NONE,
    TRUNCATED,
    AnyColumns,
    Columns,
    Layout,
    digest,
)
from specsim.traces._manifest import MANIFEST, write_manifest

#: The default size of a shard, which bounds the loss in a crash and the memory of the writer.
SHARD_BYTES = 64 * 2**20


@contextmanager
def writer(
    path: str | Path,
    *,
    vocab_size: int,
    gamma: int,
    dtype: str = "float32",
    top: int | None = None,
    flags: bool = True,
    bonus: bool = True,
    rows_per_shard: int | None = None,
    provenance: Mapping[str, Any] | None = None,
) -> Iterator[TraceWriter]:
    """Context manager that writes a trace, one step at a time.

    Shards and manifest are written to temporary files, synced and renamed. If the block raises, the steps
    appended so far are written first.

    Parameters
    ----------
    path : path
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
        A shard has the whole steps that fit in so many rows, by default in 64 MiB.
    provenance : mapping, optional
        Anything that JSON can represent.

    Yields
    ------
    TraceWriter

    Raises
    ------
    FileExistsError
        If the folder is not empty.
    ValueError, TypeError
        For bad arguments.
    OSError
        If a shard cannot be written; earlier ones can be read.

    Examples
    --------
    >>> import tempfile
    >>> from specsim.traces import open_trace, summarise, writer
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with writer(folder, vocab_size=2, gamma=1) as trace:
    ...         trace.append(context=0, tokens=[0], accepted=1, p=[[0.5, 0.5]] * 2, q=[[0.75, 0.25]] * 2)
    ...     summarise(open_trace(folder)).alpha_context
    0.75
    """
    layout = _layout(vocab_size, gamma, dtype, top, flags, bonus)
    steps = _steps_per_shard(layout, rows_per_shard)
    facts = dict(provenance or {})
    json.dumps(facts, allow_nan=False)  # raises here rather than after an hour of recording
    sink = TraceWriter(path, layout, steps, facts)
    finished = False
    try:
        yield sink
        finished = True
    finally:
        sink.flush()
        sink.closed = True
        if finished:
            sink.write_manifest(sink.shards, complete=True)


#: Rows of a truncated trace: token ids and probabilities of each.
Pair = tuple[ArrayLike, ArrayLike]
Rows = Sequence[Pair]


class TraceWriter:
    """Yielded by `writer`; `append` adds one step."""

    def __init__(self, path: str | Path, layout: Layout, steps_per_shard: int, provenance: dict[str, Any]):
        self.layout = layout
        self.provenance = provenance
        self.steps = 0
        self.shards: list[dict[str, Any]] = []
        rows = steps_per_shard * layout.rows_per_step
        self._buffer = layout.named({n: np.empty(shape, t) for n, (t, shape) in layout.columns(rows).items()})
        self.path = _empty_folder(path)  # after the buffer, so that a lack of memory leaves nothing behind
        self.closed = False
        self.write_manifest([], complete=False)

    def append(
        self, context: int, tokens: ArrayLike, accepted: int | None, p: ArrayLike | Rows, q: ArrayLike | Rows
    ) -> None:
        """Add a step.

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
            drafted one; the rest is the tail.

        Raises
        ------
        ValueError, TypeError
            Naming row, token and value; nothing is written then.
        """
        if self.closed:
            raise ValueError(f"{self.path}: the trace is closed, a step can no longer be added")
        layout = self.layout
        drafted = self._check_tokens(tokens)
        marks = self._check_accepted(accepted)
        document = _check_context(context)

        start = self._pending * layout.rows_per_step
        rows = self._buffer.take(slice(start, start + layout.rows_per_step))
        rows.step[:] = self.steps
        rows.context[:] = document
        rows.position[:] = np.arange(layout.gamma + 1)
        rows.token[:] = NONE
        rows.token[: drafted.size] = drafted
        rows.accepted[:] = marks
        if isinstance(rows, Columns):
            self._fill_dense(rows, drafted[: layout.gamma], p, q)
        else:
            p_rows, q_rows = _pairs(p, "p"), _pairs(q, "q")
            if not layout.bonus:
                q_rows.append(((), ()))
            self._fill_truncated(rows.p_tokens, rows.p, p_rows, "p")
            self._fill_truncated(rows.q_tokens, rows.q, q_rows, "q")
            for row, token in enumerate(drafted[: layout.gamma]):
                _check_listed_support(row, token, *q_rows[row])
                listed = rows.q_tokens[row] == token
                rows.q[row, listed] = np.maximum(rows.q[row, listed], _smallest(rows.q))
        self._seal(rows)

        self.steps += 1
        if self._pending * layout.rows_per_step == self._buffer.step.size:
            self.flush()

    def _fill_dense(self, rows: Columns, drafted: Ints, p: Any, q: Any) -> None:
        rows.p[:] = self._check_rows(p, "p", self.layout.rows_per_step)
        if self.layout.bonus:
            rows.q[:] = self._check_rows(q, "q", self.layout.rows_per_step)
        else:
            rows.q[:-1] = self._check_rows(q, "q", self.layout.gamma)
            rows.q[-1] = rows.p[-1]
        _check_support(drafted, np.asarray(q))
        _keep_positive(rows.q, drafted)

    @property
    def _pending(self) -> int:
        """Steps in the buffer: those appended less those in shards."""
        return self.steps - sum(shard["rows"] for shard in self.shards) // self.layout.rows_per_step

    def flush(self) -> None:
        """Write the steps appended so far as a shard; called at the end, and when the buffer is full."""
        from safetensors import SafetensorError
        from safetensors.numpy import save_file

        rows = self._pending * self.layout.rows_per_step
        if not rows:
            return
        columns = self._buffer.take(slice(0, rows))
        path = self.path / f"shard-{len(self.shards):05d}.safetensors"
        try:
            with atomic_write(path) as temporary:
                save_file(columns._asdict(), temporary)
        except (OSError, SafetensorError) as error:  # safetensors has its own error for a full disk
            done = self.steps - self._pending
            raise OSError(
                f"{path}: cannot be written ({error}); {done} steps before it can be read"
            ) from None
        sha256 = digest(_header(path), columns.checksum)
        entry = {"file": path.name, "rows": rows, "bytes": path.stat().st_size, "sha256": sha256}
        shards = [*self.shards, entry]
        self.write_manifest(shards, complete=False)
        self.shards = shards

    def write_manifest(self, shards: list[dict[str, Any]], *, complete: bool) -> None:
        """Replace the manifest by one that lists `shards`."""
        content = {
            "vocab_size": self.layout.vocab_size,
            "gamma": self.layout.gamma,
            "dtype": self.layout.dtype,
            "values": DENSE if self.layout.top is None else TRUNCATED,
            **({} if self.layout.top is None else {"top": self.layout.top}),
            **{name: False for name in ("flags", "bonus") if not getattr(self.layout, name)},
            "complete": complete,
            "provenance": self.provenance,
            "shards": shards,
        }
        write_manifest(self.path, content)

    def _check_tokens(self, tokens: ArrayLike) -> Ints:
        drafted = check_tokens(tokens, self.layout.vocab_size, "tokens")
        gamma = self.layout.gamma
        if drafted.shape != (gamma,) and not (gamma == 0 and drafted.shape == (1,)):
            raise ValueError(f"tokens: shape {drafted.shape}, expected ({gamma},), one per drafted token")
        return drafted

    def _check_accepted(self, accepted: int | None) -> list[int]:
        """The column `accepted` of a step."""
        gamma = self.layout.gamma
        if accepted is None and not self.layout.flags:
            return [NONE] * (gamma + 1)
        if accepted is None or not self.layout.flags:
            raise ValueError(
                f"accepted: {accepted} in a trace with{'' if self.layout.flags else 'out'} flags"
            )
        passed = _integer(accepted, "accepted")
        if not 0 <= passed <= gamma:
            raise ValueError(f"accepted: {passed} is outside [0, {gamma}], the number of drafted tokens")
        return _marks(passed, gamma)

    def _check_rows(self, rows: ArrayLike, name: str, number: int) -> NDArray[Any]:
        """The `number` rows [number, V] in the stored dtype."""
        wanted = (number, self.layout.vocab_size)
        given = _array(rows, name, f"shape {wanted}")
        if given.shape != wanted:
            count = "gamma + 1" if number > self.layout.gamma else "gamma"
            raise ValueError(
                f"{name}: shape {given.shape}, expected {wanted}: {count} rows over the vocabulary"
            )
        stored = DTYPES[self.layout.dtype]
        checked = check_rows(given, name)
        # abs: stored zeros have no sign
        return np.abs(given if given.dtype == stored else checked.astype(stored))

    def _fill_truncated(
        self, tokens: NDArray[np.int32], values: NDArray[Any], rows: list[Pair], name: str
    ) -> None:
        """Fill tokens and values [γ + 1, k] from pairs (token ids, probabilities)."""
        tokens[:], values[:] = NONE, 0
        if len(rows) != len(tokens):
            raise ValueError(f"{name}: {len(rows)} rows, expected {len(tokens)}")
        for row, (listed, probabilities) in enumerate(rows):
            place = f"{name}, row {row}"
            ids = check_tokens(listed, self.layout.vocab_size, place)
            given = _array(probabilities, place, "a probability for each token")
            if ids.ndim != 1 or given.shape != ids.shape or ids.size > tokens.shape[1]:
                raise ValueError(
                    f"{place}: tokens {ids.shape} and probabilities {given.shape}; expected one of "
                    f"each, at most {tokens.shape[1]}"
                )
            if not ids.size:
                continue
            order = np.argsort(ids)
            ids, weights = ids[order], check_probabilities(given, place)[order]
            if (twice := np.flatnonzero(ids[1:] == ids[:-1])).size:
                raise ValueError(f"{place}: token {ids[twice[0]]} is listed twice")
            tolerance = TOLERANCE.get(given.dtype, TOLERANCE[np.dtype(np.float64)])
            tolerance = max(tolerance, TOLERANCE[DTYPES[self.layout.dtype]])
            if (mass := float(weights.sum())) > 1.0 + tolerance:
                raise ValueError(
                    f"{place}: the listed tokens sum to {mass:.12g}, which leaves no tail; rounding "
                    f"allows {tolerance:.2g}"
                )
            tokens[row, : ids.size] = ids
            values[row, : ids.size] = np.abs(weights).astype(values.dtype)

    def _seal(self, rows: AnyColumns) -> None:
        """Fill in the checksums of one step, and check it as a reader does."""
        found = measure(rows, np.array([self.steps]), self.layout)
        if found.fault.any():
            row = int(np.argmax(found.fault != SOUND))
            raise ValueError(f"step {self.steps}, row {row}: {FAULTS[int(found.fault[row])]}")
        rows.checksum[:] = found.checksum


def _integer(value: Any, name: str) -> int:
    if isinstance(value, bool | np.bool_):
        raise TypeError(f"{name}: expected an integer, got the bool {value}")
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name}: expected an integer, got {value!r} ({type(value).__name__})") from None


def _check_context(context: Any) -> int:
    number = _integer(context, "context")
    if not -(2**63) <= number < 2**63:
        raise ValueError(f"context: {number} does not fit in 64 bits; number the documents otherwise")
    return number


def _array(values: Any, name: str, expected: str) -> NDArray[Any]:
    try:
        return np.asarray(values)
    except ValueError:  # NumPy's message does not name the array
        raise ValueError(f"{name}: rows differ in length; expected {expected}") from None


def _pairs(rows: Any, name: str) -> list[Pair]:
    """The rows of a truncated trace, one by one."""
    try:
        return [(tokens, probabilities) for tokens, probabilities in rows]
    except (TypeError, ValueError):
        raise ValueError(
            f"{name}: expected a pair (token ids, probabilities) for each row, as the trace is truncated "
            "(top); rows over the whole vocabulary go into a trace without top"
        ) from None


def _marks(accepted: int, gamma: int) -> list[int]:
    """The column `accepted` of a step: ones, a zero at the rejection, `NONE` after it."""
    if accepted == gamma:
        return [1] * gamma + [NONE]
    return [1] * accepted + [0] + [NONE] * (gamma - accepted)


def _check_support(drafted: Ints, q: NDArray[Any]) -> None:
    for row, token in enumerate(drafted):
        if not q[row, token] > 0:
            raise ValueError(f"q, row {row}, token {token}: probability 0, but that token was drafted there")


def _check_listed_support(row: int, token: int, listed: ArrayLike, probabilities: ArrayLike) -> None:
    weights = np.asarray(probabilities, dtype=np.float64)
    own = weights[np.asarray(listed) == token]
    if not (own[0] > 0 if own.size else weights.sum() < 1.0):
        raise ValueError(f"q, row {row}, token {token}: probability 0, but that token was drafted there")


def _keep_positive(q: NDArray[Any], drafted: Ints) -> None:
    """Undo the rounding to 0 of a drafted token's probability: it was possible."""
    places = (np.arange(drafted.size), drafted)
    q[places] = np.maximum(q[places], _smallest(q))


def _smallest(rows: NDArray[Any]) -> Any:
    return ml_dtypes.finfo(rows.dtype).smallest_subnormal


def _header(path: Path) -> bytes:
    with path.open("rb") as file:
        length = file.read(8)
        return length + file.read(int.from_bytes(length, "little"))


def _layout(vocab_size: int, gamma: int, dtype: str, top: int | None, flags: bool, bonus: bool) -> Layout:
    if any(isinstance(number, bool) for number in (vocab_size, gamma, top)):
        raise TypeError("vocab_size, gamma and top: expected integers, got a bool")
    if operator.index(vocab_size) < 1:
        raise ValueError(f"vocab_size: {vocab_size} is less than 1")
    if operator.index(vocab_size) > MOST_TOKENS:
        raise ValueError(
            f"vocab_size: {vocab_size} is more than {MOST_TOKENS}; token ids are stored as int32"
        )
    if operator.index(gamma) < 1 and not (gamma == 0 and not flags):
        raise ValueError(
            f"gamma: {gamma} is less than 1 (0, without flags, is a text in which nothing was drafted)"
        )
    if gamma == 0 and not bonus:
        raise ValueError("gamma: 0 without q at the bonus position has no row of q at all")
    if dtype not in DTYPES:
        raise ValueError(f"dtype: {dtype!r} is not one of {', '.join(DTYPES)}")
    if top is not None and operator.index(top) < 1:
        raise ValueError(f"top: {top} is less than 1")
    return Layout(int(vocab_size), int(gamma), dtype, top, bool(flags), bool(bonus))


def _steps_per_shard(layout: Layout, rows_per_shard: int | None) -> int:
    if rows_per_shard is None:
        return max(1, SHARD_BYTES // (layout.row_bytes * layout.rows_per_step))
    if operator.index(rows_per_shard) < layout.rows_per_step:
        raise ValueError(
            f"rows_per_shard: {rows_per_shard} is less than the {layout.rows_per_step} rows "
            "(gamma + 1) of one step"
        )
    return rows_per_shard // layout.rows_per_step


def _empty_folder(path: str | Path) -> Path:
    folder = Path(path)
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"{folder}: a file, not a folder")
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        what = "already holds a trace" if (folder / MANIFEST).exists() else "is not empty"
        raise FileExistsError(f"{folder}: {what}; a trace goes into a folder of its own")
    try:  # of two writers that find it empty at once, one makes the manifest
        (folder / MANIFEST).open("x").close()
    except FileExistsError:
        raise FileExistsError(f"{folder}: another writer has just begun a trace there") from None
    return folder
