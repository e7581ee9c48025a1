"""Tables of experiments on disk, as Parquet: made when they are asked for, kept as long as they are true.

A table carries, in the metadata of its schema under "specsim", where it came from, a digest of its own rows, and a
digest of all that they depend on: the experiment's name, `fast`, `rng`, the version, and every file of the package but
those that an experiment cannot see, which are other experiments and what stands above them. So a table is never older
than the code; a change to how a figure is drawn leaves it alone. Neither time nor threads are written into it: the same rows
give the same file.

While an experiment runs, rows already there are kept in NAME.part, lines of JSON, the first of them the digest. A run that
was interrupted goes on from them. Rows are numbered, so that two runs that should ever write to one file do no harm.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import experiments
from experiments import Row
from specsim.core._files import replacing
from specsim.core._kernels import PACKAGE
from specsim.core._provenance import Provenance, specsim_version
from specsim.core._streams import root_of
from specsim.simulation._counting import Progress
from specsim.simulation._executors import Task, Workers

__all__ = ["MissingTable", "make_tables", "read_table", "rows_digest", "table", "table_digest"]

KEY = b"specsim"
#: What stands above the experiments, and cannot change what comes out of them.
ABOVE = ("cli", "testing.py", "__main__.py", "_pytest_plugin.py")


class MissingTable(FileNotFoundError):
    """A table that was to be read is not there."""


def table(
    name: str,
    folder: Path | str,
    *,
    fast: bool = False,
    rng: int = 0,
    progress: Progress | None = None,
    fresh: bool = False,
) -> pa.Table:
    """The table of the experiment `name`: `folder`/NAME.parquet where that is current, else run, and kept there.

    `rng` is an integer ≥ 0; `progress` is called with cells done and cells in all. `fresh` runs it whatever is there.
    Raises ValueError for an unknown experiment, or rows that are no table.
    """
    if not fresh and _is_current(name, folder, fast, rng):
        return read_table(name, folder, fast=fast, rng=rng)
    log = _Log(name, folder, fast, rng, fresh)
    for row in experiments.rows(name, fast=fast, rng=rng, done=len(log.rows), progress=progress):
        log.add(row)
    return log.finish()


def make_tables(
    names: Sequence[str],
    folder: Path | str,
    workers: Workers,
    *,
    fast: bool = False,
    rng: int = 0,
    progress: Progress | None = None,
) -> None:
    """Make those tables of the experiments `names` that are not current in `folder`, cells side by side, by `workers`.

    They are those that `table` makes, and an interrupted one goes on in the same way. `progress` is called with cells done
    and cells in all. Raises as `table`, and as `Workers.results`.
    """
    logs = {name: _Log(name, folder, fast, rng) for name in names if not _is_current(name, folder, fast, rng)}
    sizes = {name: experiments.number_of_cells(name, fast=fast) for name in names}
    begun = {name: len(log.rows) if sizes[name] > 1 else 0 for name, log in logs.items()}
    cells = deque((name, number) for name, first in begun.items() for number in range(first, sizes[name]))
    done, total = sum(sizes.values()) - len(cells), sum(sizes.values())
    early: dict[tuple[str, int], list[Row]] = {}

    def next_task() -> Task | None:
        return Task(_run_cell, (*cells.popleft(), fast, rng)) if cells else None

    for task, _, rows in workers.results(next_task):
        name = task.arguments[0]
        early[name, task.arguments[1]] = rows
        while (name, begun[name]) in early:  # rows are kept in order
            found = early.pop((name, begun[name]))
            for row in found if sizes[name] > 1 else found[len(logs[name].rows) :]:
                logs[name].add(row)
            begun[name] += 1
        done += 1
        if progress is not None:
            progress(done, total)
    for log in logs.values():
        log.finish()


def _run_cell(name: str, number: int, fast: bool, rng: int) -> list[Row]:
    return experiments.cell_rows(name, number, fast=fast, rng=rng)


def _is_current(name: str, folder: Path | str, fast: bool, rng: int) -> bool:
    try:
        read_table(name, folder, fast=fast, rng=rng)
    except (MissingTable, ValueError):
        experiments.get(name)  # an unknown name is an error, and nothing to be run
        return False
    return True


def read_table(name: str, folder: Path | str, *, fast: bool = False, rng: int = 0) -> pa.Table:
    """The table of the experiment `name` that is in `folder`; nothing is run.

    Raises MissingTable where there is none; ValueError, naming the file, where it is damaged, or was made with other
    settings or by other code.
    """
    experiments.get(name)
    place = _place(name, folder)
    if not place.is_file():
        raise MissingTable(f"{place}: no such table; make it with python -m experiments or make figures")
    remedy = "delete the file, or run it again with fresh=True"
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
    digest = hashlib.sha256(json.dumps([name, fast, root_of(rng), specsim_version()]).encode())
    for path in _sources(name):
        digest.update(f"{path.relative_to(PACKAGE.parent).as_posix()}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def rows_digest(made: pa.Table) -> str:
    """Of what a table says, in 64 hexadecimal digits, wherever it came from."""
    return hashlib.sha256(json.dumps(made.to_pylist()).encode()).hexdigest()


def _sources(name: str) -> Iterator[Path]:
    """Every file that the experiment `name` could depend on, in order: the library, what experiments share, and its own."""
    root = PACKAGE.parent
    others = {other for other in experiments.names() if other != name}
    for path in sorted([*PACKAGE.rglob("*"), *(root / "experiments").rglob("*")]):
        package, first, *_ = path.relative_to(root).parts
        if not path.is_file() or "__pycache__" in path.parts:
            continue
        if first in ABOVE if package == PACKAGE.name else Path(first).stem in others:
            continue
        yield path


def _place(name: str, folder: Path | str) -> Path:
    return Path(folder) / f"{name}.parquet"


# --- running ---------------------------------------------------------------------------------------------


class _Log:
    """NAME.part of one table: the rows there already, and those that come, until they are a table."""

    def __init__(self, name: str, folder: Path | str, fast: bool, rng: int, fresh: bool = False):
        self.name, self._fast, self._rng = name, fast, rng
        self._place = _place(name, folder)
        self._place.parent.mkdir(parents=True, exist_ok=True)
        self._part = self._place.with_suffix(".part")
        head = table_digest(name, fast=fast, rng=rng)
        self.rows = [] if fresh else _kept_rows(self._part, head)
        with replacing(self._part) as temporary:
            lines = [f"{head}\n", *map(_line, range(len(self.rows)), self.rows)]
            temporary.write_text("".join(lines), encoding="utf-8")

    def add(self, row: Row) -> None:
        _check_row(self.name, len(self.rows), row)
        with self._part.open("a", encoding="utf-8") as file:
            file.write(_line(len(self.rows), row))
        self.rows.append(row)

    def finish(self) -> pa.Table:
        made = _table_of(self.name, self.rows, self._fast, self._rng)
        with replacing(self._place) as temporary:
            pq.write_table(made, temporary)
        self._part.unlink(missing_ok=True)
        return made


def _kept_rows(part: Path, head: str) -> list[Row]:
    """The rows of an interrupted run of the same experiment, up to the first line that is not whole."""
    if not part.is_file():
        return []
    first, *lines = part.read_text(encoding="utf-8", errors="replace").split("\n")
    rows: list[Row] = []
    for line in lines[:-1] if first == head else ():  # what follows the last end of line was cut
        try:
            number, row = json.loads(line)
        except (ValueError, TypeError):
            break
        if number != len(rows):
            break
        rows.append(row)
    return rows


def _line(number: int, row: Row) -> str:
    return f"{json.dumps([number, row], ensure_ascii=False, allow_nan=False)}\n"


def _check_row(name: str, number: int, row: Row) -> None:
    for column, value in row.items():
        if not isinstance(value, str | int | float | None) or (
            isinstance(value, float) and not math.isfinite(value)
        ):
            raise ValueError(
                f"{name}, row {number}, column {column}: {value!r} is not a finite number, a text or None"
            )


def _table_of(name: str, rows: list[Row], fast: bool, rng: int) -> pa.Table:
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
        # neither threads nor seconds: they change no row, and should change no byte
        "provenance": Provenance.record(root_of(rng), threads=0, seconds=0.0).to_dict(),
    }
    return made.replace_schema_metadata({KEY: json.dumps(about, ensure_ascii=False)})
