"""Makes figures: the tables that they show where these are not current, then the pictures, as .svg, .png and
.pdf.

Files are written whole or not at all; the same tables give the same bytes.
"""

from collections.abc import Sequence
from concurrent.futures import Executor
from pathlib import Path

import pyarrow as pa

import experiments
import figures
from experiments import ShowProgress, shows_progress, told
from experiments._kept import KEPT, kept
from experiments._tables import make_tables
from figures._palette import mark, save_figure

ENDINGS = ("svg", "png", "pdf")


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
    needed = dict.fromkeys(source for module in modules.values() for source in module.TABLES)
    ready = [] if fast else [source for source in needed if source in KEPT]
    run = [source for source in needed if source not in ready]
    cells = sum(experiments.number_of_cells(source, fast=fast) for source in run)

    def report(done: int) -> None:
        if tell is not None:
            tell(done, cells + len(modules))

    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    tables = make_tables(
        run, folder / "tables", fast=fast, rng=rng, executor=executor, progress=lambda done, _: report(done)
    ) | {source: pa.Table.from_pylist(kept(source)) for source in ready}
    made = {}
    for number, (name, module) in enumerate(modules.items(), 1):
        figure = module.draw(*(tables[source] for source in module.TABLES))
        if fast:
            mark(figure)
        made[name] = tuple(folder / f"{name}.{ending}" for ending in ENDINGS)
        for file in made[name]:
            save_figure(figure, file)
        report(cells + number)
    return made
