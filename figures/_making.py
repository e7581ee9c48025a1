"""Makes figures: the tables that they show, then the pictures, as .svg, .png and .pdf.

What was made is left alone while it is true: `made.json` beside the pictures has, for each figure, a digest of its tables,
of the code that draws it and of matplotlib's version, and the checksums of its files. Files are written whole or not at
all, so an interrupt leaves nothing that a next run would not finish; the same tables and code give the same bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import experiments
import figures
from experiments._tables import make_tables, rows_digest, table
from specsim.core._files import atomic_write
from specsim.core._kernels import PACKAGE
from specsim.core._plotting import save_figure
from specsim.simulation._counting import Progress
from specsim.simulation._executors import workers_of

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Made", "make_figures"]

ENDINGS = ("svg", "png", "pdf")
#: The folder of the tables, in that of the pictures.
TABLES = "tables"
RECORD = "made.json"


@dataclass(frozen=True)
class Made:
    """A figure's files, and whether it was drawn now or found as it should be."""

    name: str
    files: tuple[Path, ...]
    drawn: bool


def make_figures(
    names: Sequence[str] | None = None,
    out: Path | str = "results/figures",
    *,
    fast: bool = False,
    rng: int = 0,
    executor: Executor | str | None = None,
    progress: Progress | None = None,
) -> list[Made]:
    """Make the figures called `names`, by default all, in the folder `out`, with their tables in `out`/tables.

    `fast` simulates less, `rng` is the seed of what is simulated, an integer ≥ 0; `progress` is called with parts done
    and parts in all, cells of tables and pictures. `executor`, as in `specsim.simulate`, runs the experiments side by side,
    to the same tables. Raises ValueError, with the nearest name, for an unknown figure,
    before anything is run.
    """
    modules = {name: figures.get(name) for name in dict.fromkeys(names or figures.names())}
    needed = list(dict.fromkeys(source for module in modules.values() for source in module.TABLES))
    sizes = {source: experiments.number_of_cells(source, fast=fast) for source in needed}
    total, done = sum(sizes.values()) + len(modules), 0

    def told(now: int) -> None:
        if progress is not None:
            progress(now, total)

    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    with workers_of(executor) as workers:
        if workers is not None:
            make_tables(
                needed, folder / TABLES, workers, fast=fast, rng=rng, progress=lambda now, _: told(now)
            )
    tables = {}
    for source, size in sizes.items():
        cell = (lambda now, _, before=done: told(before + now)) if size > 1 else None
        tables[source] = table(source, folder / TABLES, fast=fast, rng=rng, progress=cell)
        done += size
        if workers is None:
            told(done)
    made = []
    for name, module in modules.items():
        made.append(_make(name, [tables[source] for source in module.TABLES], folder))
        done += 1
        told(done)
    return made


def _make(name: str, tables: list[pa.Table], folder: Path) -> Made:
    """Draw one figure, unless it is there and true."""
    files = tuple(folder / f"{name}.{ending}" for ending in ENDINGS)
    digest = _digest(name, tables)
    record = _record(folder)
    if record.get(name) == {"from": digest, "files": _checksums(files)}:
        return Made(name, files, drawn=False)
    figure = figures.get(name).draw(*tables)
    for file in files:
        save_figure(figure, file)
    record[name] = {"from": digest, "files": _checksums(files)}
    with atomic_write(folder / RECORD) as temporary:
        temporary.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return Made(name, files, drawn=True)


def _digest(name: str, tables: list[pa.Table]) -> str:
    """Of all that a figure's bytes depend on."""
    digest = hashlib.sha256(version("matplotlib").encode())
    for shown in tables:
        digest.update(rows_digest(shown).encode())
    here = Path(__file__).parent
    core = PACKAGE / "core"
    for path in (
        here / f"{name}.py",
        *sorted(here.glob("_*.py")),
        core / "_plotting.py",
        core / "specsim.mplstyle",
    ):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _checksums(files: Sequence[Path]) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files if file.is_file()}


def _record(folder: Path) -> dict[str, Any]:
    """What was made in `folder`; nothing where that cannot be read, so that all is made again."""
    try:
        found = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
