"""Tables of experiments on disk, as Parquet: run on demand, and kept while they are current.

The metadata of a table, under "specsim", hold its provenance, a digest of its rows, and a digest of all that
the rows depend on: the experiment's name, `fast`, `rng`, the version, and all files of specsim/ and of the
experiment's room. So a table is never older than the code that it comes from. Neither time nor threads are
recorded: the same rows give the same file.

While an experiment runs, the rows of finished cells are kept in NAME.part, from which an interrupted run
continues. Its first line is the digest; each other one is the CRC-32 of what follows, and the number of a
cell with its rows, in JSON. A line that is cut or damaged ends what is read.
"""

import hashlib
import json
import math
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import experiments
from experiments import ROOT, Progress, Row, ShowProgress, atomic_write, shows_progress, told
from specsim.core._provenance import Provenance
from specsim.core._streams import root_of
from specsim.simulation._executors import Task, workers_of

KEY = b"specsim"
REMEDY = "make it again with python -m experiments or make figures"


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
    return make_tables([name], folder, fast=fast, rng=rng, executor=executor, progress=tell, inside=tell)[
        name
    ]


def make_tables(
    names: Sequence[str],
    folder: Path | str,
    *,
    fast: bool = False,
    rng: int = 0,
    executor: Executor | str | None = None,
    progress: Progress | None = None,
    inside: Progress | None = None,
) -> dict[str, pa.Table]:
    """The tables of several experiments, as `table` makes them; `progress` is called with cells done and
    cells in all, `inside` by an experiment that runs all at once and reports its own parts."""
    sizes = {name: experiments.number_of_cells(name, fast=fast) for name in names}
    made: dict[str, pa.Table] = {}
    parts: dict[str, _Part] = {}
    for name in names:
        try:
            made[name] = read_table(name, folder, fast=fast, rng=rng)
        except (MissingTable, ValueError):
            parts[name] = _Part(Path(folder) / f"{name}.part", table_digest(name, fast=fast, rng=rng))
    cells = [(name, i) for name, part in parts.items() for i in range(sizes[name]) if i not in part.cells]
    total = sum(sizes.values())
    for done, (name, number, rows) in enumerate(_results(cells, fast, rng, executor, inside), 1):
        _check_rows(name, rows)
        parts[name].add(number, rows)
        if progress is not None:
            progress(total - len(cells) + done, total)
    for name, part in parts.items():
        rows = [row for number in sorted(part.cells) for row in part.cells[number]]
        made[name] = _write_table(name, folder, fast, rng, rows)
        part.path.unlink(missing_ok=True)
    return {name: made[name] for name in names}


class _Part:
    """The file `path` of one run: the rows of its finished `cells`, by number; another run's are dropped."""

    def __init__(self, path: Path, run: str):
        self.path, self.cells = path, dict[int, list[Row]]()
        path.parent.mkdir(parents=True, exist_ok=True)
        text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
        first, *lines = text.split("\n")
        for line in lines[:-1] if first == run else ():  # what follows the last end of line was cut
            content = line.partition(" ")[2]
            if line != _line(content):
                break
            number, rows = json.loads(content)
            self.cells[number] = rows
        with atomic_write(path) as temporary:
            lines = [_line(json.dumps(cell, ensure_ascii=False)) for cell in self.cells.items()]
            temporary.write_text("\n".join([run, *lines, ""]), encoding="utf-8")

    def add(self, number: int, rows: list[Row]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(f"{_line(json.dumps([number, rows], ensure_ascii=False))}\n")
        self.cells[number] = rows


def _line(content: str) -> str:
    return f"{zlib.crc32(content.encode()):08x} {content}"


def _results(
    cells: list[tuple[str, int]],
    fast: bool,
    rng: int,
    executor: Executor | str | None,
    inside: Progress | None,
) -> Iterator[tuple[str, int, list[Row]]]:
    """(experiment, number of the cell, its rows), in the order of computation."""
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

    Raises MissingTable without a file; ValueError, naming the file, where it is damaged, or was made with
    other settings or by other code.
    """
    digest, place = table_digest(name, fast=fast, rng=rng), Path(folder) / f"{name}.parquet"
    if not place.is_file():
        raise MissingTable(
            f"{place}: no such table; make it with python -m experiments {name} or make figures"
        )
    try:
        with pq.ParquetFile(place) as file:
            found = file.read()
        about = json.loads(found.schema.metadata[KEY])
        whole = about["rows"] == rows_digest(found)
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{place}: cannot be read as a table ({error}); {REMEDY}") from error
    if not whole:
        raise ValueError(f"{place}: its rows are not those that were written; {REMEDY}")
    if about["digest"] != digest:
        raise ValueError(f"{place}: made with other settings or by other code than now; {REMEDY}")
    return found


def table_digest(name: str, *, fast: bool, rng: int) -> str:
    """What a table's rows depend on, in 64 hexadecimal digits."""
    room = experiments.path_of(name).rpartition(".")[0].replace(".", "/")
    code = [_folder_digest(folder) for folder in ("specsim", room)]
    about = [name, fast, root_of(rng), provenance(rng)["specsim"], *code]
    return hashlib.sha256(json.dumps(about).encode()).hexdigest()


@cache
def _folder_digest(folder: str) -> str:
    """All files of a folder but compiled ones."""
    digest = hashlib.sha256()
    for path in sorted((ROOT / folder).rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            digest.update(f"{path.relative_to(ROOT).as_posix()}\n".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def rows_digest(made: pa.Table) -> str:
    """The rows of a table, in 64 hexadecimal digits."""
    return hashlib.sha256(json.dumps(made.to_pylist()).encode()).hexdigest()


def provenance(rng: int) -> dict[str, object]:
    """What a table records of its origin: neither threads nor seconds nor date, which change no row, and
    should change no byte."""
    return vars(Provenance.record(root_of(rng), threads=0, seconds=0.0)) | {"date": ""}


def _write_table(name: str, folder: Path | str, fast: bool, rng: int, rows: list[Row]) -> pa.Table:
    if not rows:
        raise ValueError(f"{name}: the experiment gave no rows")
    for number, row in enumerate(rows):
        if row.keys() != rows[0].keys():
            raise ValueError(
                f"{name}, row {number}: columns {', '.join(row)}; row 0 has {', '.join(rows[0])}"
            )
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
    with atomic_write(Path(folder) / f"{name}.parquet") as temporary:
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
