"""Parts of tables: files with the rows of finished cells, of a run that was interrupted or of a shard.

The first line is the run, in JSON; each other one is the CRC-32 of what follows, and the number of a cell
with its rows, in JSON. A line that is cut or damaged ends what is read.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import experiments
from experiments import Row
from specsim.core._files import atomic_write, open_file

__all__ = ["WHOLE", "Log", "Part", "Shard", "complete_parts", "part_path", "read_part", "shard_cells"]

Shard = tuple[int, int]
#: What a part says of its run.
KEYS = {"experiment", "seed", "fast", "version", "code", "shard"}
#: The shard that has all cells.
WHOLE: Shard = (0, 1)


class Part(NamedTuple):
    """The run that a file belongs to, and the rows of its cells by number."""

    path: Path
    run: Mapping[str, Any]
    cells: Mapping[int, list[Row]]


def part_path(name: str, folder: Path | str, shard: Shard) -> Path:
    """The file of a shard, numbered from 0."""
    number = "" if shard == WHOLE else f"{shard[0]}-of-{shard[1]}."
    return Path(folder) / f"{name}.{number}part"


def shard_cells(name: str, shard: Shard, *, fast: bool) -> list[int]:
    """The numbers of the cells of a shard: every n-th, from one that depends on the name, so that
    experiments of a single cell are not all in one shard.
    """
    i, n = shard
    return [
        k
        for k in range(experiments.number_of_cells(name, fast=fast))
        if (zlib.crc32(name.encode()) + k) % n == i
    ]


class Log:
    """The file `path` of one run: the rows of its finished `cells`, by number; another run's are dropped."""

    def __init__(self, path: Path, run: Mapping[str, Any]):
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        found = read_part(path) if path.is_file() else None
        self.cells = dict(found.cells) if found is not None and found.run == run else {}
        with atomic_write(path) as temporary:
            lines = [f"{json.dumps(run)}\n", *(_line(number, rows) for number, rows in self.cells.items())]
            temporary.write_text("".join(lines), encoding="utf-8")

    def add(self, number: int, rows: list[Row]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(_line(number, rows))
        self.cells[number] = rows


def read_part(path: Path) -> Part | None:
    """What is in a file, up to the first line that is not whole; None if it is no part of a table."""
    with open_file(path) as file:
        first, *lines = file.read().decode("utf-8", errors="replace").split("\n")
    try:
        run = json.loads(first)
        known = run["experiment"] in experiments.names() and [*map(type, run["shard"])] == [int, int]
        known = known and run.keys() == KEYS
    except (ValueError, TypeError, KeyError):
        return None
    if not known:
        return None
    cells: dict[int, list[Row]] = {}
    for line in lines[:-1]:  # what follows the last end of line was cut
        checksum, _, content = line.partition(" ")
        if checksum != _checksum(content):
            break
        number, rows = json.loads(content)
        cells[number] = rows
    return Part(path, run, cells)


def complete_parts(paths: Iterable[Path]) -> dict[str, tuple[Mapping[str, Any], dict[int, list[Row]]]]:
    """The run of each experiment of which parts are in the files `paths`, and the rows of all its cells.

    Raises ValueError, naming the file or the shard, for a file that is no part, or not whole, parts of
    different runs, and a shard that is missing or given twice.
    """
    found: dict[str, dict[int, Part]] = {}
    for path in paths:
        part = read_part(path)
        if part is None:
            raise ValueError(f"{path}: not a part of a table; give the files that --shard wrote")
        name, (i, n) = part.run["experiment"], part.run["shard"]
        parts = found.setdefault(name, {})
        for other in parts.values():
            _check_same_run(part, other)
        if i in parts:
            raise ValueError(f"{path}: shard {i}/{n} of {name}, as {parts[i].path} is; give each shard once")
        wanted = shard_cells(name, (i, n), fast=part.run["fast"])
        missing = len(set(wanted) ^ set(part.cells))
        if missing:
            raise ValueError(
                f"{path}: shard {i}/{n} of {name} lacks {missing} of its {len(wanted)} cells; run it again "
                "with --shard, which goes on from the file"
            )
        parts[i] = part
    if not found:
        raise ValueError("--merge: no part was given")
    for name, parts in found.items():
        n = next(iter(parts.values())).run["shard"][1]
        if lacking := [f"{i}/{n}" for i in range(n) if i not in parts]:
            raise ValueError(
                f"{name}: shard {', '.join(lacking)} is missing; run it with --shard, and give its file"
            )
    return {
        name: (parts[0].run, {number: rows for part in parts.values() for number, rows in part.cells.items()})
        for name, parts in found.items()
    }


def _check_same_run(part: Part, other: Part) -> None:
    for what, known in other.run.items():
        there = part.run[what]
        if what == "shard":
            what, there, known = "the number of shards", there[1], known[1]
        if there != known:
            raise ValueError(
                f"{part.path}: of another run: {what} is {there!r} there, and {known!r} in {other.path}"
            )


def _line(number: int, rows: list[Row]) -> str:
    content = json.dumps([number, rows], ensure_ascii=False, allow_nan=False)
    return f"{_checksum(content)} {content}\n"


def _checksum(content: str) -> str:
    return f"{zlib.crc32(content.encode()):08x}"
