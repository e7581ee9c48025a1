"""Tables of experiments on disk, as Parquet: run when they are asked for, and kept as long as they are
current.

The metadata of a table, under "specsim", hold its provenance, a digest of its rows, and a digest of all that
the rows depend on: the experiment's name, `fast`, `rng`, the version, and the files that `_sources` finds. So
a table is never older than the code that it comes from. Neither time nor threads are recorded: the same rows
give the same file.

While an experiment runs, the rows of finished cells are kept in NAME.part (`_parts`), from which an
interrupted run continues. A shard of a run has such a file of its own, and `merge_shards` makes the tables of
the files of all of them.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

import experiments
from experiments import Row
from experiments._parts import WHOLE, Log, Shard, complete_parts, part_path, shard_cells
from experiments._sources import ROOT, sources
from specsim.core._files import atomic_write
from specsim.core._progress import Progress, ShowProgress, shows_progress, told
from specsim.core._provenance import Provenance
from specsim.core._streams import root_of
from specsim.simulation._checkpoints import check_shard
from specsim.simulation._executors import Task, workers_of

__all__ = [
    "Merged",
    "MissingTable",
    "make_shard",
    "make_tables",
    "merge_shards",
    "provenance",
    "read_table",
    "rows_digest",
    "table",
    "table_digest",
]

KEY = b"specsim"


class MissingTable(FileNotFoundError):
    """A table that was to be read is not there."""


@shows_progress("table", " cells")
def table(
    name: str,
    folder: Path | str,
    *,
    fast: bool = False,
    rng: int = 0,
    executor: Executor | str | None = None,
    progress: ShowProgress = None,
) -> pa.Table:
    """The table of the experiment `name`: `folder`/NAME.parquet where that is current, else run and written
    there.

    `rng` is an integer ≥ 0; `executor`, as in `specsim.simulate`, runs cells in parallel, to the same table;
    `progress` is called with parts done and parts in all. Raises ValueError for an unknown experiment, and
    for rows that are not a table.
    """
    tell = told(progress)
    return _make([name], folder, fast, rng, executor, tell, tell)[name]


@shows_progress("tables", " cells")
def make_tables(
    names: Sequence[str],
    folder: Path | str,
    *,
    fast: bool = False,
    rng: int = 0,
    executor: Executor | str | None = None,
    progress: ShowProgress = None,
) -> dict[str, pa.Table]:
    """The tables of several experiments, as `table` makes them; `progress` is called with cells done and
    cells in all.
    """
    return _make(names, folder, fast, rng, executor, told(progress), None)


def _make(
    names: Sequence[str],
    folder: Path | str,
    fast: bool,
    rng: int,
    executor: Executor | str | None,
    progress: Progress | None,
    inside: Progress | None,
) -> dict[str, pa.Table]:
    """`inside` is handed to an experiment that runs all at once, and reports its own parts."""
    sizes = {name: experiments.number_of_cells(name, fast=fast) for name in names}
    made: dict[str, pa.Table] = {}
    logs: dict[str, Log] = {}
    for name in names:
        try:
            made[name] = read_table(name, folder, fast=fast, rng=rng)
        except (MissingTable, ValueError):
            logs[name] = _log(name, folder, fast, rng)
    cells = [(name, i) for name, log in logs.items() for i in range(sizes[name]) if i not in log.cells]
    _fill(logs, cells, sum(sizes.values()), fast, rng, executor, progress, inside)
    for name, log in logs.items():
        made[name] = _write_table(name, folder, fast, rng, log.cells)
        log.path.unlink(missing_ok=True)
    return {name: made[name] for name in names}


@shows_progress("shard", " cells")
def make_shard(
    names: Sequence[str],
    folder: Path | str,
    shard: Shard,
    *,
    fast: bool = False,
    rng: int = 0,
    executor: Executor | str | None = None,
    progress: ShowProgress = None,
) -> list[Path]:
    """Run the cells of `shard` = (i, n), i from 0, of the tables of several experiments: those of each into a
    file of its own in `folder`, from which an interrupted run goes on.

    Raises ValueError for an unknown experiment, or a shard that does not exist.
    """
    check_shard(shard)
    wanted = {name: shard_cells(name, shard, fast=fast) for name in names}
    logs = {name: _log(name, folder, fast, rng, shard) for name in names}
    cells = [(name, i) for name, log in logs.items() for i in wanted[name] if i not in log.cells]
    _fill(logs, cells, sum(map(len, wanted.values())), fast, rng, executor, told(progress), None)
    return [log.path for log in logs.values()]


class Merged(NamedTuple):
    """Tables by name, and the settings that they share."""

    tables: dict[str, pa.Table]
    fast: bool
    rng: int


def merge_shards(paths: Sequence[Path], folder: Callable[[bool], Path]) -> Merged:
    """The tables whose parts are in the files `paths`, written to `folder`(fast) as if they had been made
    there.

    Raises ValueError as `complete_parts`, and for parts made by other code than is here.
    """
    found = complete_parts(paths)
    settings = {(run["fast"], run["seed"]) for run, _ in found.values()}
    if len(settings) > 1:
        listed = ", ".join(
            f"{name}: fast {run['fast']}, seed {run['seed']}" for name, (run, _) in found.items()
        )
        raise ValueError(f"the tables were made with different settings ({listed}); merge them one by one")
    ((fast, rng),) = settings
    for name, (run, _) in found.items():
        here = _run(name, fast, rng, WHOLE)
        for what in ("version", "code"):
            if run[what] != here[what]:
                raise ValueError(
                    f"{name}: {what} of its parts is {run[what]}, and {here[what]} here; merge them with the "
                    "specsim that made them, or run them again"
                )
    made = {name: _write_table(name, folder(fast), fast, rng, cells) for name, (_, cells) in found.items()}
    return Merged(made, fast, rng)


def _fill(
    logs: Mapping[str, Log],
    cells: list[tuple[str, int]],
    total: int,
    fast: bool,
    rng: int,
    executor: Executor | str | None,
    progress: Progress | None,
    inside: Progress | None,
) -> None:
    """Run `cells`, which are what is left of `total`, and add their rows to `logs`."""
    results = _results(cells, fast, rng, executor, inside)
    for done, (name, number, rows) in enumerate(results, total - len(cells) + 1):
        _check_rows(name, rows)
        logs[name].add(number, rows)
        if progress is not None:
            progress(done, total)


def _results(
    cells: list[tuple[str, int]],
    fast: bool,
    rng: int,
    executor: Executor | str | None,
    inside: Progress | None,
) -> Iterator[tuple[str, int, list[Row]]]:
    """(experiment, number of the cell, its rows), as they are computed."""
    with workers_of(executor) as workers:
        if workers is None:
            for name, number in cells:
                yield name, number, experiments.cell_rows(name, number, fast, rng, inside)
            return
        tasks = iter([Task(experiments.cell_rows, (*cell, fast, rng)) for cell in cells])
        for task, _, rows in workers.results(lambda: next(tasks, None)):
            yield task.arguments[0], task.arguments[1], rows


def read_table(name: str, folder: Path | str, *, fast: bool = False, rng: int = 0) -> pa.Table:
    """The table of the experiment `name` that is in `folder`; nothing is run.

    Raises MissingTable where there is none; ValueError, naming the file, where it is damaged, or was made
    with other settings or by other code.
    """
    experiments.get(name)
    place = _place(name, folder)
    if not place.is_file():
        raise MissingTable(
            f"{place}: no such table; make it with python -m experiments {name} or make figures"
        )
    remedy = "make it again with python -m experiments or make figures"
    try:
        with pq.ParquetFile(place) as file:
            found = file.read()
        about = json.loads(found.schema.metadata[KEY])
        whole = about["rows"] == rows_digest(found)
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{place}: cannot be read as a table ({error}); {remedy}") from error
    if not whole:
        raise ValueError(f"{place}: its rows are not those that were written; {remedy}")
    if about["digest"] != table_digest(name, fast=fast, rng=rng):
        raise ValueError(f"{place}: made with other settings or by other code than now; {remedy}")
    return found


def table_digest(name: str, *, fast: bool, rng: int) -> str:
    """What a table's rows depend on, in 64 hexadecimal digits."""
    digest = hashlib.sha256(json.dumps([name, fast, root_of(rng), provenance(rng)["specsim"]]).encode())
    for path in sources(name):
        digest.update(f"{path.relative_to(ROOT).as_posix()}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def rows_digest(made: pa.Table) -> str:
    """The rows of a table, in 64 hexadecimal digits."""
    return hashlib.sha256(json.dumps(made.to_pylist()).encode()).hexdigest()


def provenance(rng: int) -> dict[str, object]:
    """What a table records of its origin: neither threads nor seconds nor date, which change no row, and
    should change no byte.
    """
    return Provenance.record(root_of(rng), threads=0, seconds=0.0).to_dict() | {"date": ""}


def _place(name: str, folder: Path | str) -> Path:
    return Path(folder) / f"{name}.parquet"


def _run(name: str, fast: bool, rng: int, shard: Shard) -> dict[str, Any]:
    """What a part of a table says of the run that it belongs to, as JSON holds it."""
    version = provenance(rng)["specsim"]
    digest = table_digest(name, fast=fast, rng=rng)
    about = {"experiment": name, "seed": root_of(rng), "fast": fast, "version": version}
    return about | {"code": digest, "shard": list(shard)}


def _log(name: str, folder: Path | str, fast: bool, rng: int, shard: Shard = WHOLE) -> Log:
    return Log(part_path(name, folder, shard), _run(name, fast, rng, shard))


def _write_table(
    name: str, folder: Path | str, fast: bool, rng: int, cells: Mapping[int, list[Row]]
) -> pa.Table:
    rows = [row for number in sorted(cells) for row in cells[number]]
    _check_columns(name, rows)
    made = pa.Table.from_pylist(rows)
    about = {
        "name": name,
        "title": experiments.get(name).TITLE,
        "fast": fast,
        "digest": table_digest(name, fast=fast, rng=rng),
        "rows": rows_digest(made),
        "provenance": provenance(rng),
    }
    made = made.replace_schema_metadata({KEY: json.dumps(about, ensure_ascii=False)})
    place = _place(name, folder)
    place.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(place) as temporary:
        pq.write_table(made, temporary)
    return made


def _check_rows(name: str, rows: list[Row]) -> None:
    for number, row in enumerate(rows):
        for column, value in row.items():
            if not isinstance(value, str | int | float | None) or (
                isinstance(value, float) and not math.isfinite(value)
            ):
                raise ValueError(
                    f"{name}, row {number}, column {column}: {value!r} is not a finite number, a text or None"
                )


def _check_columns(name: str, rows: list[Row]) -> None:
    if not rows:
        raise ValueError(f"{name}: the experiment gave no rows")
    for number, row in enumerate(rows):
        if row.keys() != rows[0].keys():
            raise ValueError(
                f"{name}, row {number}: columns {', '.join(row)}; row 0 has {', '.join(rows[0])}"
            )
