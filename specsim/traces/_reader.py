"""Reading a trace: memory-mapped columns, whose rows are checked when they are read."""

import math
import operator
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specsim.core._json import parse_json
from specsim.core._progress import Progress, ShowProgress, shows_progress, silent, told
from specsim.core._tensors import TYPES
from specsim.core._types import Floats, Ints, check_known, check_unmasked, checked
from specsim.traces._checksums import FAULTS, SOUND, measure, normalise
from specsim.traces._format import MANIFEST, AnyColumns, Entries, Layout, digest, read_manifest, take
from specsim.traces._pieces import decode

#: The folder of each bundled trace, by the name of its pair.
BUNDLED = {pair: Path(__file__).parents[1] / f"data/{pair}-trace" for pair in ("ngram", "transformers")}
#: The file beside the manifest with the seconds of passes that were recorded: a table, no part of the trace.
SECONDS = "seconds.csv"
#: Read at a time. Fewer calls are better, as the rows drive the interpreter's own data out of the cache; but
#: the results should fit into memory that was used before.
CHUNK_BYTES, CHUNK_ROWS = 64 * 2**20, 2**15


class ShardStatus(NamedTuple):
    """The result of checking a shard. `damage` is None if every row is as written."""

    name: str
    num_rows: int
    num_bytes: int  #: according to the manifest
    damage: str | None

    @property
    def ok(self) -> bool:
        return self.damage is None


@dataclass(frozen=True)
class Shard:
    """One file of a trace, as its manifest describes it; it is opened by `columns` and `scan`."""

    path: Path
    layout: Layout
    num_rows: int
    num_bytes: int
    sha256: str
    first_step: int

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def num_steps(self) -> int:
        return self.num_rows // self.layout.rows_per_step

    @cached_property
    def columns(self) -> AnyColumns:
        """The shard's columns, views of the memory-mapped file; `scan` checks the rows. Raises ValueError."""
        return self._mapped[1]

    def scan(self) -> Iterator[tuple[AnyColumns, Floats]]:
        """Chunks of whole steps in order, each with bounds [2, R] on β. ValueError at a damaged row."""
        header, columns = self._mapped
        stride = self.layout.rows_per_step
        steps = max(1, min(CHUNK_BYTES // self.layout.row_bytes, CHUNK_ROWS) // stride)
        for first in range(0, self.num_steps, steps):
            local = np.arange(first, min(first + steps, self.num_steps))
            chosen = take(columns, slice(first * stride, (first + local.size) * stride))
            yield chosen, self._check(chosen, local)
        if digest(header, columns.checksum) != self.sha256:
            raise self._of_another_digest()

    def take(self, local: Ints) -> AnyColumns:
        """Copies of the rows of the steps `local` of this shard. Raises as `scan`."""
        chosen = take(self.columns, step_rows(local, self.layout.rows_per_step))
        self._check(chosen, local)
        if not self._has_its_digest:
            raise self._of_another_digest()
        return chosen

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the fields, not the mapped file."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def _check(self, columns: AnyColumns, local: Ints) -> Floats:
        """β of the rows of the steps `local` of this shard; ValueError for a damaged one."""
        found = measure(columns, self.first_step + local, self.layout)
        altered = found.checksum != columns.checksum
        bad = altered | (found.fault != SOUND)
        if bad.any():
            place = int(np.argmax(bad))
            row = int(step_rows(local, self.layout.rows_per_step)[place])
            fault = FAULTS.get(int(found.fault[place]), "")
            raise self._damaged(row, "altered, its checksum does not match" if altered[place] else fault)
        return found.beta

    @cached_property
    def _has_its_digest(self) -> bool:
        header, columns = self._mapped
        return digest(header, columns.checksum) == self.sha256

    def _of_another_digest(self) -> ValueError:
        return self._damaged(0, "the header or the checksums do not match the SHA-256 in the manifest")

    @cached_property
    def _mapped(self) -> tuple[bytes, AnyColumns]:
        if not self.path.is_file():
            raise self._damaged(0, "the file is missing")
        try:
            size = self.path.stat().st_size
            if size < 8:
                raise self._damaged(0, f"the file is cut, {size} of {self.num_bytes} bytes are left")
            # np.asarray: slicing a plain view is many times cheaper than slicing a memmap
            raw = np.asarray(np.memmap(self.path, dtype=np.uint8, mode="r"))
        except OSError as error:
            raise self._damaged(0, f"cannot be read ({error})") from None
        start = 8 + int.from_bytes(raw[:8].tobytes(), "little")
        if start > size:
            raise self._damaged(0, f"the header, of {start} bytes, is longer than the file, of {size}")
        header = raw[:start].tobytes()
        places = self._places(header[8:])
        wanted, left = max(end for _, end in places), size - start
        if left > wanted:
            raise self._damaged(self.num_rows, f"{left - wanted} bytes follow the last row")
        if left < wanted:
            whole = min(max(0, left - begin) * self.num_rows // (end - begin) for begin, end in places)
            raise self._damaged(whole, f"the file is cut, {wanted - left} bytes are missing")
        columns, data = {}, raw[start:]
        asked_for = self.layout.columns(self.num_rows).items()
        for (name, (dtype, shape)), place in zip(asked_for, places, strict=True):
            columns[name] = data[slice(*place)].view(dtype).reshape(shape)
        if size != self.num_bytes:
            raise self._damaged(0, f"the file has {size} bytes; the manifest states {self.num_bytes}")
        return header, self.layout.named(columns)

    def _places(self, header: bytes) -> list[tuple[int, int]]:
        """Where each column begins and ends after the header, in the order of the layout."""
        asked_for = self.layout.columns(self.num_rows)
        try:
            entries = {n: entry for n, entry in parse_json(header).items() if n != "__metadata__"}
            stated = {name: (entry["dtype"], tuple(entry["shape"])) for name, entry in entries.items()}
            ends = {name: map(operator.index, entry["data_offsets"]) for name, entry in entries.items()}
            places = {name: (begin, end) for name, (begin, end) in ends.items()}
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            raise self._damaged(0, f"the header is not that of a safetensors file ({error})") from None
        codes = {dtype: code for code, dtype in TYPES.items()}
        wanted = {name: (codes[dtype], shape) for name, (dtype, shape) in asked_for.items()}
        for name in sorted(wanted.keys() | stated.keys()):
            if stated.get(name) != wanted.get(name):
                column, asked = (
                    "absent" if one is None else f"{one[0]} {list(one[1])}"
                    for one in (stated.get(name), wanted.get(name))
                )
                raise self._damaged(0, f"column {name} is {column}, the manifest asks for {asked}")
        end = 0  # columns, in some order, must follow each other without a gap
        for name in sorted(places, key=places.__getitem__):
            dtype, shape = asked_for[name]
            begin, end = end, end + dtype.itemsize * math.prod(shape)
            if places[name] != (begin, end):
                raise self._damaged(0, f"column {name} is at {places[name]} instead of ({begin}, {end})")
        return [places[name] for name in wanted]

    def _damaged(self, row: int, what: str) -> ValueError:
        return ValueError(f"{self.path}, row {row}: {what}")


def step_rows(steps: Ints, stride: int) -> Ints:
    """The row numbers of steps of `stride` rows."""
    return (steps[:, None] * stride + np.arange(stride)).ravel()


@dataclass(frozen=True)
class Trace:
    """A trace on disk, as its manifest describes it. Several threads may read it."""

    path: Path  #: the folder
    layout: Layout  #: V, γ, dtype, k of truncated rows, and whether flags and bonus rows were logged
    complete: bool  #: False while the trace is being written, and if the writer was stopped
    provenance: dict[str, Any]  #: what the writer stated about the trace's origin
    shards: tuple[Shard, ...]

    @property
    def vocab_size(self) -> int:
        return self.layout.vocab_size

    @property
    def gamma(self) -> int:
        return self.layout.gamma

    @property
    def dtype(self) -> str:
        """How p and q are stored: "float32", "float16" or "bfloat16"."""
        return self.layout.dtype

    @property
    def top(self) -> int | None:
        """The k of truncated rows, None for dense rows."""
        return self.layout.top

    @property
    def num_rows(self) -> int:
        return sum(shard.num_rows for shard in self.shards)

    @property
    def num_steps(self) -> int:
        return self.num_rows // self.layout.rows_per_step

    @property
    def num_bytes(self) -> int:
        return sum(shard.num_bytes for shard in self.shards)

    def steps(self, indices: ArrayLike) -> tuple[NDArray[np.int32], Floats, Floats]:
        """Read steps: tokens int32 [B, γ], p and q float64 [B, γ+1, V], each row divided by its sum.

        `indices` [B] are step numbers in any order. Raises IndexError for a step that the trace lacks, and
        ValueError for a damaged shard or row, which it names, and for truncated rows."""
        if self.top is not None:
            raise ValueError(f"{self.path}: lists {self.top} tokens a row; give a trace with whole rows")
        check_unmasked("indices", indices)
        wanted = np.asarray(indices)
        if wanted.ndim != 1 or (wanted.size and wanted.dtype.kind not in "iu"):
            raise ValueError(f"indices: {wanted.dtype} of shape {wanted.shape}; give integers [B]")
        if (outside := (wanted < 0) | (wanted >= self.num_steps)).any():
            raise IndexError(f"indices: step {wanted[outside][0]} is outside [0, {self.num_steps})")
        wanted, stride = wanted.astype(np.int64), self.layout.rows_per_step
        tokens = np.empty((wanted.size, self.gamma), np.int32)
        p = np.empty((wanted.size, stride, self.vocab_size))
        q = np.empty_like(p)
        starts = np.array([shard.first_step for shard in self.shards])
        owner = np.searchsorted(starts, wanted, side="right") - 1
        for number in np.unique(owner):
            shard = self.shards[number]
            places = np.flatnonzero(owner == number)
            rows = shard.take(wanted[places] - shard.first_step)
            tokens[places] = rows.token.reshape(-1, stride)[:, :-1]
            places = step_rows(places, stride)
            normalise(decode(rows.p), places, p.reshape(-1, self.vocab_size))
            normalise(decode(rows.q), places, q.reshape(-1, self.vocab_size))
        return tokens, p, q

    def scan(self, progress: Progress = silent) -> Iterator[tuple[AnyColumns, Floats]]:
        """The chunks of all shards, see `Shard.scan`; `progress(rows, of_rows)` is called after each."""
        done = 0
        for shard in self.shards:
            for columns, beta in shard.scan():
                yield columns, beta
                done += columns.step.size
                progress(done, self.num_rows)

    @shows_progress("check", " rows")
    def verify(self, *, progress: ShowProgress = None) -> tuple[ShardStatus, ...]:
        """Read every row, and tell of each shard whether it is as written; nothing is raised."""
        tell, found, done = told(progress), [], 0
        for shard in self.shards:
            damage, read = None, 0
            try:
                for columns, _ in shard.scan():
                    read += columns.position.size
                    tell(done + read, self.num_rows)
            except ValueError as error:
                damage = str(error)
            found.append(ShardStatus(shard.name, shard.num_rows, shard.num_bytes, damage))
            done += shard.num_rows
        return tuple(found)


@checked
def open_trace(path: str | Path) -> Trace:
    """Open a trace; only its manifest is read.

    Parameters
    ----------
    path : path
        The folder.

    Returns
    -------
    Trace

    Raises
    ------
    ValueError
        If the folder has no trace, or its manifest is damaged or of another version.

    Examples
    --------
    >>> from specsim.traces import default_trace
    >>> open_trace(default_trace().path).gamma
    4
    """
    folder = Path(path)
    manifest = Entries(folder / MANIFEST, read_manifest(folder))
    layout = manifest.layout()
    rows = f"a multiple of gamma + 1 = {layout.rows_per_step}"
    plain = "a file name in the trace's folder"  # a manifest must not name files outside its folder
    shards, first_step = list[Shard](), 0
    objects = manifest.get("shards", list, "a list of objects", lambda es: all(type(e) is dict for e in es))
    for listed in objects:
        entry = Entries(manifest.file, listed)
        name = entry.get("file", str, plain, lambda name: name not in ("", "..") and Path(name).name == name)
        shard = Shard(
            path=folder / name,
            layout=layout,
            num_rows=entry.get("rows", int, rows, lambda n: n > 0 and n % layout.rows_per_step == 0),
            num_bytes=entry.get("bytes", int, "a number of bytes", lambda n: n > 0),
            sha256=entry.get("sha256", str, "a SHA-256"),
            first_step=first_step,
        )
        shards.append(shard)
        first_step += shard.num_steps
    complete = manifest.get("complete", bool, "true or false")
    return Trace(folder, layout, complete, manifest.get("provenance", dict, "an object"), tuple(shards))


@checked
def default_trace(pair: str = "ngram") -> Trace:
    """Open a bundled trace, recorded with the standard rule at γ = 4, one text after the other.

    Parameters
    ----------
    pair : {"ngram", "transformers"}
        The bundled n-grams, or two small transformers of 4 layers and 2, over 1024 tokens, trained on the
        same text. `Trace.provenance` says how they were trained, and how well they predict held-out text.

    Returns
    -------
    Trace
        Rows list the 16 most probable tokens; those of the transformers all 20 that were sampled from.

    Examples
    --------
    >>> trace = default_trace()
    >>> trace.num_steps, trace.gamma, trace.top
    (768, 4, 16)
    >>> default_trace("transformers").vocab_size
    1024
    """
    check_known("bundled trace", pair, [*BUNDLED])
    return open_trace(BUNDLED[pair])
