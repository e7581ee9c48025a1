"""Checkpoints and shards: safetensors files with partial results of a run.

The tensors are the int64 counts. The metadata has, under the name of the format, the SHA-256 of the counts
and of the JSON text that follows it."""

import copyreg
import hashlib
import io
import json
import os
import pickle
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import index
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specsim import rules
from specsim.core._files import check_file, check_target
from specsim.core._json import parse_json, rebuilding
from specsim.core._provenance import this_code
from specsim.core._saving import is_result
from specsim.core._tensors import read_tensors, save_tensors
from specsim.simulation._counting import Example, Failure, Interval, Partial
from specsim.simulation._sources import FixedPairSource, RowSource, models_of
from specsim.traces._reader import Trace

FORMAT = "specsim part 2"
REMEDY = "delete it, and run its steps again"
#: Seconds between two writes of a checkpoint, unless others are given.
CHECKPOINT_SECONDS = 60.0


@dataclass(frozen=True)
class Part:
    """The counts of a run by name: the steps of a simulation, or the cases of an audit."""

    run: dict[str, Any]  #: what identifies the run, in plain values
    about: dict[str, Any]  #: the other values of its result
    found: Mapping[str, Partial]

    @property
    def seconds(self) -> float:
        return sum(one.seconds for one in self.found.values())

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the part to `path`, atomically."""
        arrays, entries = {}, {}
        for name, partial in self.found.items():
            for key, array in partial.counts.items():
                arrays[f"{name}: {key}"] = np.ascontiguousarray(array, dtype=np.int64)
            entries[name] = vars(partial) | {"counts": [*partial.counts]}
        head = json.dumps({"run": self.run, "about": self.about, "found": entries}, allow_nan=False)
        save_tensors(path, arrays, {FORMAT: f"{_digest(head, arrays)}\n{head}"})

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> "Part":
        """Read the part in the file `path`. Raises ValueError if it is damaged or of another format."""
        check_file(path)
        try:
            arrays, metadata = read_tensors(path)
        except ValueError as error:
            if is_result(path):
                raise ValueError(
                    f"{path}: holds a result, not a checkpoint; give the file of its counts (--out)"
                ) from None
            raise ValueError(
                f"{path}: is damaged, or not a part of a run ({error.__cause__}); give another file, or run "
                "its steps again"
            ) from error
        if FORMAT not in metadata:
            raise ValueError(f"{path}: is not a part of a run ({FORMAT!r}); give a file of this version")
        digest, _, head = metadata[FORMAT].partition("\n")
        if _digest(head, arrays) != digest:
            raise ValueError(f"{path}: damaged, its checksum is wrong; {REMEDY}")
        with rebuilding(path, REMEDY):
            part = parse_json(head)
            found = {
                name: Partial(
                    {key: arrays[f"{name}: {key}"] for key in entries["counts"]},
                    tuple((index(first), index(end)) for first, end in entries["intervals"]),
                    tuple(Example(*one) for one in entries["examples"]),
                    tuple(Failure(*one) for one in entries["failures"]),
                    float(entries["seconds"]),
                )
                for name, entries in part["found"].items()
            }
            return cls(dict(part["run"]), dict(part["about"]), found)

    def check_same_run(self, run: dict[str, Any], path: str | os.PathLike[str], other: str) -> None:
        """Raise ValueError, with the field that differs, unless this part of `path` belongs to `run`."""
        run = json.loads(json.dumps(run))  # as read from a file: tuples become lists
        for name in dict.fromkeys([*run, *self.run]):
            there, known = self.run.get(name), run.get(name)
            if there != known:
                differs = f"{name} is {there!r} there, {known!r} {other}"
                raise ValueError(f"{path}: is of another run ({differs}); give its own file")


def _digest(head: str, arrays: dict[str, NDArray[Any]]) -> str:
    digest = hashlib.sha256(f"{head}\n".encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array, dtype="<i8").data)
    return digest.hexdigest()


def add_parts(paths: Sequence[str | os.PathLike[str]]) -> Part:
    """Add the parts in the files `paths`. Raises ValueError for none, other runs and steps in two parts."""
    if not len(paths):
        raise ValueError("paths: none given; give the files of the parts")
    total = Part.read(paths[0])
    for path in paths[1:]:
        part = Part.read(path)
        part.check_same_run(total.run, path, f"in {paths[0]}")
        found = dict(total.found)
        try:
            for name, partial in part.found.items():
                if name in found and not partial.intervals:  # else the sum detects common steps
                    raise ValueError(f"{name} is counted twice")
                found[name] = found[name] + partial if name in found else partial
        except ValueError as error:
            raise ValueError(f"{path}: {error}, also in a file before it; give each part once") from None
        total = replace(total, found=found)
    return total


def shard_interval(steps: int, chunk: int, shard: tuple[int, int] | None) -> Interval:
    """The steps of shard (i, n): whole chunks if there are n of them. Raises as `check_shard`."""
    if shard is None:
        return 0, steps
    i, n = check_shard(shard)
    if n > steps:
        raise ValueError(f"shard: {steps} steps cannot make {n} parts; give at most {steps}")
    unit = chunk if n * chunk <= steps else 1
    units = -(-steps // unit)
    first, end = (unit * (units * k // n) for k in (i, i + 1))
    return first, min(end, steps)


def check_shard(shard: tuple[int, int]) -> tuple[int, int]:
    """`shard` (i, n). Raises TypeError unless it is a pair of integers, ValueError unless 0 ≤ i < n."""
    if not (isinstance(shard, tuple) and [type(number) for number in shard] == [int, int]):
        raise TypeError(f"shard: {shard!r} is not a pair of integers; give (i, n)")
    i, n = shard
    if not 0 <= i < n:
        raise ValueError(f"shard: {i}/{n} does not exist; give i from 0 to {max(n, 1) - 1}")
    return i, n


class Checkpoint:
    """Stores a part in the file `path`: at first, every `seconds`, and at the end, also after an exception.
    An existing file is read first; ValueError if it is of another run, and as `Part.read`."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        run: dict[str, Any],
        about: dict[str, Any],
        seconds: float = CHECKPOINT_SECONDS,
    ):
        self.part, self._path, self._seconds = Part(run, about, {}), path, seconds
        if check_target(path).exists():
            self.part = Part.read(path)
            self.part.check_same_run(run, path, "here")

    def __enter__(self) -> "Checkpoint":
        self._write()  # fails before the work if the path cannot be written
        return self

    def __exit__(self, *_: object) -> None:
        self._write()

    def keep(self, name: str, partial: Partial) -> None:
        """Set the counts of `name`, and write the file if `seconds` have passed."""
        self.part = replace(self.part, found={**self.part.found, name: partial})
        if time.monotonic() - self._written >= self._seconds:
            self._write()

    def _write(self) -> None:
        self._written = time.monotonic()
        self.part.write(self._path)


def which_run(
    source: FixedPairSource | RowSource, rule: str | rules.Rule, steps: int, root: int
) -> dict[str, Any]:
    """What identifies a run, in plain values."""
    rules.registered_spec(rule)
    shape = {"source": source.kind, "rule": str(rules.get(rule)), "draft": source.tree.to_dict()}
    return shape | {"steps": steps, "seed": root, "p and q": digest(source, needed=True)} | this_code()


def digest(source: FixedPairSource | RowSource, *, needed: bool = False) -> str | None:
    """A hash of p and q, wherever a trace lies; for unpicklable models None, or TypeError if `needed`."""
    stream = io.BytesIO()
    pickler = pickle.Pickler(stream, protocol=5)
    pickler.fast = True  # written out in full: equal is the same as identical
    pickler.dispatch_table = copyreg.dispatch_table | {
        Trace: lambda trace: (tuple, ((trace.layout, [shard.sha256 for shard in trace.shards]),))
    }
    try:
        pickler.dump(models_of(source))
    except (pickle.PicklingError, TypeError, AttributeError, ValueError) as error:
        if not needed:
            return None
        raise TypeError(
            f"checkpoint: the models cannot be pickled ({error}); define them as classes of a module"
        ) from error
    return hashlib.sha256(stream.getvalue()).hexdigest()[:16]
