"""Tables of experiments on disk, as Parquet: run when they are asked for, and kept as long as they are
current.

The metadata of a table, under "specsim", hold its provenance, a digest of its rows, and a digest of all that
the rows depend on: the experiment's name, `fast`, `rng`, the version, and the files that `_sources` finds. So
a table is never older than the code that it comes from. Neither time nor threads are recorded: the same rows
give the same file.

While an experiment runs, the rows of finished cells are kept in NAME.part: the digest, then a line of JSON
for each cell. An interrupted run continues from them.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import experiments
from experiments import Row
from experiments._sources import ROOT, sources
from specsim.core._files import atomic_write
from specsim.core._progress import Progress, ShowProgress, shows_progress, told
from specsim.core._provenance import Provenance
from specsim.core._streams import root_of
from specsim.simulation._executors import Task, workers_of

__all__ = ["MissingTable", "make_tables", "provenance", "read_table", "rows_digest", "table", "table_digest"]

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
    logs: dict[str, _Log] = {}
    for name in names:
        try:
            made[name] = read_table(name, folder, fast=fast, rng=rng)
        except (MissingTable, ValueError):
            logs[name] = _Log(name, folder, fast, rng)
    cells = [(name, i) for name, log in logs.items() for i in range(sizes[name]) if i not in log.cells]
    total = sum(sizes.values())
    for done, (name, number, rows) in enumerate(
        _results(cells, fast, rng, executor, inside), total - len(cells) + 1
    ):
        logs[name].add(number, rows)
        if progress is not None:
            progress(done, total)
    return {name: made[name] if name in made else logs[name].finish() for name in names}


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


class _Log:
    """NAME.part of one table: the rows of its finished `cells`, by number."""

    def __init__(self, name: str, folder: Path | str, fast: bool, rng: int):
        self._name, self._fast, self._rng = name, fast, rng
        self._place = _place(name, folder)
        self._place.parent.mkdir(parents=True, exist_ok=True)
        self._part = self._place.with_suffix(".part")
        self._digest = table_digest(name, fast=fast, rng=rng)
        self.cells = _kept_cells(self._part, self._digest)
        with atomic_write(self._part) as temporary:
            lines = [f"{self._digest}\n", *(_line(number, rows) for number, rows in self.cells.items())]
            temporary.write_text("".join(lines), encoding="utf-8")

    def add(self, number: int, rows: list[Row]) -> None:
        _check_rows(self._name, rows)
        with self._part.open("a", encoding="utf-8") as file:
            file.write(_line(number, rows))
        self.cells[number] = rows

    def finish(self) -> pa.Table:
        rows = [row for number in sorted(self.cells) for row in self.cells[number]]
        _check_columns(self._name, rows)
        made = pa.Table.from_pylist(rows)
        about = {
            "name": self._name,
            "title": experiments.get(self._name).TITLE,
            "fast": self._fast,
            "digest": self._digest,
            "rows": rows_digest(made),
            "provenance": provenance(self._rng),
        }
        made = made.replace_schema_metadata({KEY: json.dumps(about, ensure_ascii=False)})
        with atomic_write(self._place) as temporary:
            pq.write_table(made, temporary)
        self._part.unlink(missing_ok=True)
        return made


def _kept_cells(part: Path, digest: str) -> dict[int, list[Row]]:
    """The cells of an interrupted run of the same experiment, up to the first line that is not whole."""
    if not part.is_file():
        return {}
    first, *lines = part.read_text(encoding="utf-8", errors="replace").split("\n")
    cells: dict[int, list[Row]] = {}
    for line in lines[:-1] if first == digest else ():  # what follows the last end of line was cut
        try:
            number, rows = json.loads(line)
        except (ValueError, TypeError):
            break
        cells[number] = rows
    return cells


def _line(number: int, rows: list[Row]) -> str:
    return f"{json.dumps([number, rows], ensure_ascii=False, allow_nan=False)}\n"


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
