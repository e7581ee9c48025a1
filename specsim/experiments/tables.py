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
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from specsim import experiments
from specsim.engine import Progress
from specsim.experiments import Row
from specsim.files import replacing
from specsim.jit import PACKAGE
from specsim.provenance import Provenance
from specsim.streams import root_of

__all__ = ["MissingTable", "read_table", "rows_digest", "table", "table_digest"]

KEY = b"specsim"
#: What stands above the experiments, and cannot change what comes out of them.
ABOVE = ("figures", "cli.py", "testing.py", "__main__.py", "pytest_plugin.py")


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
    if not fresh:
        try:
            return read_table(name, folder, fast=fast, rng=rng)
        except (MissingTable, ValueError):
            experiments.get(name)  # an unknown name is an error, and nothing to be run
    place = _place(name, folder)
    place.parent.mkdir(parents=True, exist_ok=True)
    part = place.with_suffix(".part")
    if fresh:
        part.unlink(missing_ok=True)
    made = _table_of(name, list(_rows(name, part, fast, rng, progress)), fast, rng)
    with replacing(place) as temporary:
        pq.write_table(made, temporary)
    part.unlink(missing_ok=True)
    return made


def read_table(name: str, folder: Path | str, *, fast: bool = False, rng: int = 0) -> pa.Table:
    """The table of the experiment `name` that is in `folder`; nothing is run.

    Raises MissingTable where there is none; ValueError, naming the file, where it is damaged, or was made with other
    settings or by other code.
    """
    experiments.get(name)
    place = _place(name, folder)
    if not place.is_file():
        raise MissingTable(
            f"{place}: no such table; make it with specsim.experiments.tables.table or make figures"
        )
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
    digest = hashlib.sha256(json.dumps([name, fast, root_of(rng), _version()]).encode())
    for path in _sources(name):
        digest.update(f"{path.relative_to(PACKAGE).as_posix()}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def rows_digest(made: pa.Table) -> str:
    """Of what a table says, in 64 hexadecimal digits, wherever it came from."""
    return hashlib.sha256(json.dumps(made.to_pylist()).encode()).hexdigest()


def _sources(name: str) -> Iterator[Path]:
    """Every file of the package that the experiment `name` could depend on, in order."""
    others = {other for other in experiments.names() if other != name}
    for path in sorted(PACKAGE.rglob("*")):
        first, *rest = path.relative_to(PACKAGE).parts
        if not path.is_file() or "__pycache__" in path.parts or first in ABOVE:
            continue
        if first == "experiments" and Path(rest[0]).stem in others:
            continue
        yield path


def _version() -> str:
    return Provenance.record(0, 1, 0.0).specsim


def _place(name: str, folder: Path | str) -> Path:
    return Path(folder) / f"{name}.parquet"


# --- running ---------------------------------------------------------------------------------------------


def _rows(name: str, part: Path, fast: bool, rng: int, progress: Progress | None) -> Iterator[Row]:
    """All rows, those that `part` has first, and `part` with them."""
    head = table_digest(name, fast=fast, rng=rng)
    kept = _kept_rows(part, head)
    with replacing(part) as temporary:
        temporary.write_text("".join([f"{head}\n", *map(_line, range(len(kept)), kept)]), encoding="utf-8")
    yield from kept
    new = experiments.rows(name, fast=fast, rng=rng, done=len(kept), progress=progress)
    with part.open("a", encoding="utf-8") as log:
        for number, row in enumerate(new, len(kept)):
            _check_row(name, number, row)
            log.write(_line(number, row))
            log.flush()
            yield row


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
