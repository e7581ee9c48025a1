"""Parts of a run: which steps were counted, and what came of them. Checkpoints and shards are files of this one kind.

A file is a line that names the format, a line with the SHA-256 of all that follows, a line of JSON, and the count arrays
as little-endian int64, one after the other. Counts of the same run over different steps add up, in any order.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specsim.core._files import atomic_write
from specsim.simulation._counting import Counts, Interval

__all__ = ["Checkpoint", "Part", "add_parts", "check_shard", "missing", "shard_interval"]

FORMAT = b"specsim part 1\n"
#: Seconds between two writings of a checkpoint.
CHECKPOINT_SECONDS = 60.0


@dataclass(frozen=True)
class Part:
    """Counts of some steps of a run.

    `run` says which run it is, in plain values, and is the same for all of its parts. `about` is what else a result needs:
    "seconds" of work, and what follows from the rest. `intervals` are the steps counted, in order, apart from each other.
    """

    run: dict[str, Any]
    about: dict[str, Any]
    counts: Counts
    intervals: tuple[Interval, ...] = ()

    @property
    def steps(self) -> int:
        """How many steps were counted."""
        return sum(end - first for first, end in self.intervals)

    def plus(
        self, intervals: Iterable[Interval], counts: dict[str, NDArray[Any]], seconds: float = 0.0
    ) -> Part:
        """With these steps too. Raises ValueError for steps that were counted before."""
        return replace(
            self,
            about=self.about | {"seconds": self.about["seconds"] + seconds},
            counts={name: array + counts[name] for name, array in self.counts.items()},
            intervals=_joined([*self.intervals, *intervals]),
        )

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the part to `path`, whole or not at all."""
        arrays = {name: np.ascontiguousarray(array, dtype="<i8") for name, array in self.counts.items()}
        head = {
            "run": self.run,
            "about": self.about,
            "intervals": self.intervals,
            "counts": {name: array.shape for name, array in arrays.items()},
        }
        line = json.dumps(head, ensure_ascii=False, allow_nan=False).encode() + b"\n"
        body = b"".join([line, *(array.tobytes() for array in arrays.values())])
        with atomic_write(path) as temporary:
            temporary.write_bytes(FORMAT + hashlib.sha256(body).hexdigest().encode() + b"\n" + body)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Part:
        """The part in the file `path`.

        Raises ValueError, naming the file, where that is damaged, of another version of the format or of another kind.
        """
        content = Path(path).read_bytes()
        if not content.startswith(FORMAT):
            raise ValueError(
                f"{path}: no part of a run in the format of this version ({FORMAT.decode().strip()!r})"
            )
        digest, _, body = content[len(FORMAT) :].partition(b"\n")
        if hashlib.sha256(body).hexdigest().encode() != digest:
            raise ValueError(
                f"{path}: damaged, its checksum does not match; delete it, and run its steps again"
            )
        line, _, data = body.partition(b"\n")
        head = json.loads(line)
        flat, counts = np.frombuffer(data, dtype="<i8").astype(np.int64), {}
        for name, shape in head["counts"].items():
            size = math.prod(shape)
            counts[name], flat = flat[:size].reshape(shape), flat[size:]
        return cls(
            head["run"], head["about"], counts, tuple((first, end) for first, end in head["intervals"])
        )

    def or_from(self, path: str | os.PathLike[str] | None, within: Interval) -> Part:
        """This part, nothing of it being counted yet; or the one in the file `path`, where that is already.

        Raises ValueError for a file of another run, or with steps outside `within`, and as `read`.
        """
        if path is None or not Path(path).exists():
            return self
        found = Part.read(path)
        found.check_same_run(self.run, path, "here")
        if outside := [one for one in found.intervals if one[0] < within[0] or one[1] > within[1]]:
            raise ValueError(
                f"{path}: has steps {outside[0][0]:,} to {outside[0][1] - 1:,}, which are not of this shard; give every shard "
                "a file of its own"
            )
        return found

    def check_same_run(self, run: dict[str, Any], path: str | os.PathLike[str], other: str) -> None:
        """Raise ValueError, naming what differs, unless this part, of the file `path`, is one of `run`, that of `other`."""
        run = json.loads(json.dumps(run))  # as it would come from a file: of a tuple a list
        for name in dict.fromkeys([*run, *self.run]):
            there, known = self.run.get(name), run.get(name)
            if there != known:
                raise ValueError(f"{path}: of another run: {name} is {there!r} there, and {known!r} {other}")


def add_parts(paths: Sequence[str | os.PathLike[str]]) -> Part:
    """The parts in the files `paths`, added up.

    Raises ValueError where there is none, for files that cannot be read, parts of different runs (naming the field that
    differs), and steps that are in two of them.
    """
    if not paths:
        raise ValueError("paths: no part was given")
    total = Part.read(paths[0])
    for path in paths[1:]:
        part = Part.read(path)
        part.check_same_run(total.run, path, f"in {paths[0]}")
        try:
            total = total.plus(part.intervals, part.counts, part.about["seconds"])
        except ValueError as error:
            raise ValueError(
                f"{path}: {error}, there and in a file before it; give every part once"
            ) from None
    return total


def missing(intervals: Sequence[Interval], first: int, end: int) -> list[Interval]:
    """What of the steps [first, end) is in none of `intervals`, which are in order.

    >>> missing([(2, 4), (6, 9)], 0, 10)
    [(0, 2), (4, 6), (9, 10)]
    """
    gaps = []
    for a, b in (*intervals, (end, end)):
        if a > first:
            gaps.append((first, min(a, end)))
        first = max(first, b)
        if first >= end:
            break
    return gaps


def shard_interval(steps: int, chunk: int, shard: tuple[int, int] | None) -> Interval:
    """The steps of shard (i, n), i from 0 to n - 1: whole chunks where there are at least n of them.

    Raises ValueError for a shard that does not exist, or without steps; TypeError for no pair of integers.

    >>> [shard_interval(100, 10, (i, 3)) for i in range(3)]
    [(0, 30), (30, 60), (60, 100)]
    """
    if shard is None:
        return 0, steps
    i, n = check_shard(shard)
    if n > steps:
        raise ValueError(f"shard: {steps} steps cannot be cut into {n} parts")
    unit = chunk if n * chunk <= steps else 1
    units = -(-steps // unit)
    first, end = (unit * (units * k // n) for k in (i, i + 1))
    return first, min(end, steps)


def check_shard(shard: tuple[int, int]) -> tuple[int, int]:
    """`shard` (i, n) with 0 ≤ i < n. Raises ValueError for another, TypeError for no pair of integers."""
    if not (isinstance(shard, tuple) and [type(number) for number in shard] == [int, int]):
        raise TypeError(f"shard: {shard!r} is not a pair (i, n) of integers")
    i, n = shard
    if not 0 <= i < n:
        raise ValueError(f"shard: {i}/{n} does not exist; the {max(n, 0)} shards are numbered from 0")
    return i, n


class Checkpoint:
    """Keeps a part in the file `path`, if there is one: at the beginning, every minute, and at the end, whatever that is.

    `part` is replaced in one piece, so that an interrupt finds steps and counts that belong together.
    """

    def __init__(self, part: Part, path: str | os.PathLike[str] | None):
        self.part, self._path = part, path

    def __enter__(self) -> Checkpoint:
        self._since = time.monotonic()
        self._write()  # a place where nothing can be written is known before the work
        return self

    def __exit__(self, *_: object) -> None:
        self._write()

    def add(self, first: int, steps: int, counts: dict[str, NDArray[Any]]) -> None:
        """Count steps [first, first + steps), and write all if a minute has passed."""
        self.part = self.part.plus([(first, first + steps)], counts, self._lap())
        if time.monotonic() - self._written >= CHECKPOINT_SECONDS:
            self._write()

    def _lap(self) -> float:
        """Seconds since the last time."""
        before, self._since = self._since, time.monotonic()
        return self._since - before

    def _write(self) -> None:
        self._written = time.monotonic()
        if self._path is not None:
            self.part.write(self._path)


def _joined(intervals: Iterable[Interval]) -> tuple[Interval, ...]:
    """In order, those that touch made one. Raises ValueError where two overlap."""
    joined: list[Interval] = []
    for first, end in sorted(intervals):
        if joined and first < joined[-1][1]:
            raise ValueError(f"steps {first:,} to {min(end, joined[-1][1]) - 1:,} are counted twice")
        if joined and first == joined[-1][1]:
            joined[-1] = joined[-1][0], end
        else:
            joined.append((first, end))
    return tuple(joined)
