"""Makes figures: the tables that they show where these are not current, then the pictures, as .svg, .png and
.pdf.

Files are written whole or not at all; the same tables give the same bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from types import ModuleType

import experiments
import figures
from experiments._kept import is_kept, kept_table
from experiments._tables import Shard, make_shard, make_tables
from specsim.core._plotting import save_figure
from specsim.core._progress import ShowProgress, shows_progress, told

__all__ = ["TABLES", "make_figures", "make_parts", "shown_by"]

ENDINGS = ("svg", "png", "pdf")
#: The folder of the tables, in that of the pictures.
TABLES = "tables"


@shows_progress("figures", " parts")
def make_figures(
    names: Sequence[str] | None = None,
    out: Path | str = "results/figures",
    *,
    fast: bool = False,
    rng: int = 0,
    executor: Executor | str | None = None,
    progress: ShowProgress = None,
) -> dict[str, tuple[Path, ...]]:
    """Make the figures called `names`, by default all, in the folder `out`, with their tables in
    `out`/tables.

    `fast` simulates less, `rng` is the seed of what is simulated, an integer ≥ 0; `progress` is called with
    parts done and parts in all, cells of tables and pictures. `executor`, as in `specsim.simulate`, runs the
    cells in parallel, to the same tables. A full-size table that the repository keeps, since it takes hours,
    is not run. Returns the files of each figure. Raises ValueError, with the nearest name, for an unknown
    figure, before anything is run.
    """
    tell = told(progress)
    modules = {name: figures.get(name) for name in dict.fromkeys(names or figures.names())}
    run, kept = _tables(modules, fast)
    cells = sum(experiments.number_of_cells(source, fast=fast) for source in run)

    def report(done: int) -> None:
        if tell is not None:
            tell(done, cells + len(modules))

    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    tables = make_tables(
        run, folder / TABLES, fast=fast, rng=rng, executor=executor, progress=lambda done, _: report(done)
    ) | {source: kept_table(source) for source in kept}
    made = {}
    for number, (name, module) in enumerate(modules.items(), 1):
        figure = module.draw(*(tables[source] for source in module.TABLES))
        made[name] = tuple(folder / f"{name}.{ending}" for ending in ENDINGS)
        for file in made[name]:
            save_figure(figure, file)
        report(cells + number)
    return made


def make_parts(
    names: Sequence[str] | None,
    out: Path | str,
    shard: Shard,
    *,
    fast: bool = False,
    rng: int = 0,
    executor: Executor | str | None = None,
) -> list[Path]:
    """Run the cells of `shard` of the figures' tables, as `make_shard`, in `out`/tables; nothing is drawn."""
    modules = {name: figures.get(name) for name in dict.fromkeys(names or figures.names())}
    run, _ = _tables(modules, fast)
    return make_shard(run, Path(out) / TABLES, shard, fast=fast, rng=rng, executor=executor)


def shown_by(names: Sequence[str], tables: Collection[str], *, fast: bool) -> list[str]:
    """The figures that show some of `tables` and no others that would have to be run, or `names`.

    Raises ValueError if one of `names` shows others, or if there is no such figure.
    """
    found = []
    for name in names or figures.names():
        run, _ = _tables({name: figures.get(name)}, fast)
        lacking = [source for source in run if source not in tables]
        if names and lacking:
            raise ValueError(
                f"{name}: no part of its table {', '.join(lacking)} is given; give the files of all shards"
            )
        if run and not lacking:
            found.append(name)
    if not found:
        raise ValueError(f"no figure shows {', '.join(tables)} and no other table; name one with --merge")
    return found


def _tables(modules: Mapping[str, ModuleType], fast: bool) -> tuple[list[str], list[str]]:
    """The tables that figures show: those that are run, and those that the repository keeps."""
    needed = dict.fromkeys(source for module in modules.values() for source in module.TABLES)
    kept = [] if fast else [source for source in needed if is_kept(source)]
    return [source for source in needed if source not in kept], kept
