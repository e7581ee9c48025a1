"""Writing a trace, so that a crash costs at most the shard that was not yet written."""

from __future__ import annotations

import json
import operator
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import ArrayLike, NDArray

from specsim.distributions import check_rows, check_tokens
from specsim.files import replacing
from specsim.traces.format import (
    DTYPES,
    FORMAT,
    MANIFEST,
    NONE,
    VALUES,
    VERSION,
    Columns,
    Layout,
    digest,
)
from specsim.traces.rows import FAULTS, SOUND, measure

#: What a shard holds unless told otherwise: so much is lost in a crash, and so much memory the writer takes.
SHARD_BYTES = 64 * 2**20


@contextmanager
def writer(
    path: str | Path,
    *,
    vocab_size: int,
    gamma: int,
    dtype: str = "float32",
    rows_per_shard: int | None = None,
    provenance: Mapping[str, Any] | None = None,
) -> Iterator[TraceWriter]:
    """Write a trace into the new or empty folder `path`, one step at a time.

    `vocab_size` V ≥ 1; `gamma` ≥ 1 drafted tokens per step, the same in every step; `dtype` of the stored
    rows is "float32", "float16" or "bfloat16"; a shard holds as many whole steps as fit in `rows_per_shard`
    rows (by default 64 MiB); `provenance` is anything that JSON can hold.

    Each shard is written beside its place, forced to disk and renamed, the manifest after it. When the block
    is left by an exception, the steps appended so far are written, and the exception goes on.

    Raises FileExistsError if the folder holds anything, ValueError or TypeError for a bad argument.

    >>> import tempfile
    >>> from specsim.traces import open_trace, summarise, writer
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with writer(folder, vocab_size=2, gamma=1) as trace:
    ...         trace.append(context=0, tokens=[0], accepted=1, p=[[0.5, 0.5]] * 2, q=[[0.75, 0.25]] * 2)
    ...     summarise(open_trace(folder)).alpha_context
    0.75
    """
    layout = _layout(vocab_size, gamma, dtype)
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


class TraceWriter:
    """What `writer` hands out: `append` adds one step."""

    def __init__(self, path: str | Path, layout: Layout, steps_per_shard: int, provenance: dict[str, Any]):
        self.layout = layout
        self.provenance = provenance
        self.steps = 0
        self.shards: list[dict[str, Any]] = []
        rows = steps_per_shard * layout.rows_per_step
        self._buffer = Columns(**{n: np.empty(shape, t) for n, (t, shape) in layout.columns(rows).items()})
        self.path = _empty_folder(path)  # after the buffer, so that a lack of memory leaves nothing behind
        self.closed = False
        self.write_manifest([], complete=False)

    def append(self, context: int, tokens: ArrayLike, accepted: int, p: ArrayLike, q: ArrayLike) -> None:
        """Add a step.

        `context` is the integer id of the document or starting context; `tokens` int[γ] were drafted, of which
        the first `accepted` (0 … γ) passed; `p` and `q` [γ + 1, V] are the target's and the draft's rows at
        each position, the bonus position included. Rows that come in the trace's dtype are stored bit for
        bit, others are normalised as float64 and rounded.

        Raises ValueError, naming row, token and value, for a wrong shape, a negative or NaN entry, a row that
        does not sum to 1 within its rounding, a token out of range, or one that q could not have drafted;
        TypeError for anything but integers and real rows. Nothing is written then.
        """
        if self.closed:
            raise ValueError(f"{self.path}: the trace is closed, a step can no longer be added")
        gamma = self.layout.gamma
        drafted = self._check_tokens(tokens)
        passed = operator.index(accepted)
        if not 0 <= passed <= gamma:
            raise ValueError(f"accepted: {passed} is outside [0, {gamma}], the number of drafted tokens")
        p_rows = self._check_rows(p, "p")
        q_rows = self._check_rows(q, "q")
        _check_support(drafted, np.asarray(q))

        start = self._pending * self.layout.rows_per_step
        rows = self._buffer.take(slice(start, start + self.layout.rows_per_step))
        rows.step[:] = self.steps
        rows.context[:] = operator.index(context)
        rows.position[:] = np.arange(gamma + 1)
        rows.token[:] = [*drafted, NONE]
        rows.accepted[:] = _marks(passed, gamma)
        rows.p[:] = p_rows
        rows.q[:] = q_rows
        _keep_positive(rows.q, drafted)
        self._seal(rows)

        self.steps += 1
        if self._pending * self.layout.rows_per_step == self._buffer.step.size:
            self.flush()

    @property
    def _pending(self) -> int:
        """Steps in the buffer: those appended less those in shards, so that no count of its own can go stale."""
        return self.steps - sum(shard["rows"] for shard in self.shards) // self.layout.rows_per_step

    def flush(self) -> None:
        """Write the steps appended so far as a shard of their own; called at the end, and when one is full."""
        from safetensors.numpy import save_file

        rows = self._pending * self.layout.rows_per_step
        if not rows:
            return
        columns = self._buffer.take(slice(0, rows))
        path = self.path / f"shard-{len(self.shards):05d}.safetensors"
        with replacing(path) as temporary:
            save_file(columns._asdict(), temporary)
        entry = {
            "file": path.name,
            "rows": rows,
            "bytes": path.stat().st_size,
            "sha256": digest(_header(path), columns.checksum),
        }
        shards = [*self.shards, entry]
        self.write_manifest(shards, complete=False)
        self.shards = shards

    def write_manifest(self, shards: list[dict[str, Any]], *, complete: bool) -> None:
        """Replace the manifest by one that lists `shards`."""
        manifest = {
            "format": FORMAT,
            "version": VERSION,
            "vocab_size": self.layout.vocab_size,
            "gamma": self.layout.gamma,
            "dtype": self.layout.dtype,
            "values": VALUES,
            "complete": complete,
            "provenance": self.provenance,
            "shards": shards,
        }
        with replacing(self.path / MANIFEST) as temporary:
            temporary.write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")

    def _check_tokens(self, tokens: ArrayLike) -> NDArray[np.int64]:
        drafted = check_tokens(tokens, self.layout.vocab_size, "tokens")
        if drafted.shape != (self.layout.gamma,):
            raise ValueError(
                f"tokens: shape {drafted.shape}, expected ({self.layout.gamma},), one per drafted token"
            )
        return drafted

    def _check_rows(self, rows: ArrayLike, name: str) -> NDArray[Any]:
        """The rows [γ + 1, V] in the stored dtype."""
        given = np.asarray(rows)
        wanted = (self.layout.rows_per_step, self.layout.vocab_size)
        if given.shape != wanted:
            raise ValueError(
                f"{name}: shape {given.shape}, expected {wanted}: gamma + 1 rows over the vocabulary"
            )
        stored = DTYPES[self.layout.dtype]
        checked = check_rows(given, name)
        # abs: a zero may come with a sign, which the stored one does not have
        return np.abs(given if given.dtype == stored else checked.astype(stored))

    def _seal(self, rows: Columns) -> None:
        """Fill in the checksums of one step, and look at it as a reader will."""
        found = measure(rows, np.array([self.steps]), self.layout)
        if found.fault.any():
            row = int(np.argmax(found.fault != SOUND))
            raise ValueError(f"step {self.steps}, row {row}: {FAULTS[int(found.fault[row])]}")
        rows.checksum[:] = found.checksum


def _marks(accepted: int, gamma: int) -> list[int]:
    """The column `accepted` of a step: ones, a zero where it stopped, nothing tested after that."""
    if accepted == gamma:
        return [1] * gamma + [NONE]
    return [1] * accepted + [0] + [NONE] * (gamma - accepted)


def _check_support(drafted: NDArray[np.int64], q: NDArray[Any]) -> None:
    for row, token in enumerate(drafted):
        if not q[row, token] > 0:
            raise ValueError(f"q, row {row}, token {token}: probability 0, but that token was drafted there")


def _keep_positive(q: NDArray[Any], drafted: NDArray[np.int64]) -> None:
    """Undo, for the drafted tokens, a rounding to 0: the log must not call impossible what was drawn."""
    places = (np.arange(drafted.size), drafted)
    q[places] = np.maximum(q[places], ml_dtypes.finfo(q.dtype).smallest_subnormal)


def _header(path: Path) -> bytes:
    with path.open("rb") as file:
        length = file.read(8)
        return length + file.read(int.from_bytes(length, "little"))


def _layout(vocab_size: int, gamma: int, dtype: str) -> Layout:
    if isinstance(vocab_size, bool) or isinstance(gamma, bool):
        raise TypeError("vocab_size and gamma: expected integers, got a bool")
    if operator.index(vocab_size) < 1:
        raise ValueError(f"vocab_size: {vocab_size} is less than 1")
    if operator.index(gamma) < 1:
        raise ValueError(f"gamma: {gamma} is less than 1")
    if dtype not in DTYPES:
        raise ValueError(f"dtype: {dtype!r} is not one of {', '.join(DTYPES)}")
    return Layout(int(vocab_size), int(gamma), dtype)


def _steps_per_shard(layout: Layout, rows_per_shard: int | None) -> int:
    if rows_per_shard is None:
        return max(1, SHARD_BYTES // (layout.row_bytes * layout.rows_per_step))
    if operator.index(rows_per_shard) < layout.rows_per_step:
        raise ValueError(
            f"rows_per_shard: {rows_per_shard} is less than the {layout.rows_per_step} rows (gamma + 1) of one step"
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
    return folder
