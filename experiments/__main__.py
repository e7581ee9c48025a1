"""`python -m experiments [NAME ...]`: the tables of the experiments, as Parquet, and the pages that show
them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from experiments import get
from experiments import names as known
from experiments._kept import PAGES, is_kept, keep, page_of, renewed, write_page
from experiments._tables import make_shard, merge_shards, table
from specsim.cli import run_app
from specsim.cli._app import ending
from specsim.cli._options import Executor, shard_of, whole

PROGRAM = "python -m experiments"
app = App(
    name=PROGRAM,
    help="Run experiments and write their tables.",
    help_epilogue=ending("", "chen_table_1", "precision --fast --out tables", program=PROGRAM),
)


@app.default
def experiments(
    *names: Annotated[str, Parameter(help="Experiments to run; without any they are listed.")],
    fast: Annotated[bool, Parameter(negative="", help="Do less work: fewer steps, cells or seeds.")] = False,
    out: Annotated[
        Path | None,
        Parameter(help="Folder of the tables; default: results/tables, with --fast results/tables-fast."),
    ] = None,
    seed: Annotated[int, Parameter(converter=whole, help="Seed of what is simulated.")] = 0,
    executor: Executor = None,
    shard: Annotated[
        str | None,
        Parameter(
            help="i/n: run only part i of n (from 0) of the cells, into a file NAME.i-of-n.part for each "
            "table; --merge makes the tables of all parts."
        ),
    ] = None,
    merge: Annotated[
        list[Path] | None,
        Parameter(negative="", consume_multiple=True, help="Make tables of the files that --shard wrote."),
    ] = None,
    keep_rows: Annotated[
        bool,
        Parameter(
            name="--keep",
            negative="",
            help="Also write what the repository keeps: experiments/kept/NAME.json and the page in "
            "docs/results.",
        ),
    ] = False,
    only: Annotated[
        list[str] | None,
        Parameter(
            negative="",
            consume_multiple=True,
            help="With --keep: run only the cells that begin with these names again, and take the others "
            "from the kept rows.",
        ),
    ] = None,
    pages: Annotated[
        bool,
        Parameter(
            negative="",
            help="Write the pages in docs/results from the kept rows and from the tables of quick "
            "experiments.",
        ),
    ] = False,
) -> None:
    """Run experiments; a table that is there already, made by the same code and seed, is left as it is."""
    for name in names:
        get(name)  # an unknown name is refused before anything is run
    if (keep_rows and fast) or (only and not (keep_rows and len(names) == 1)):
        raise ValueError(
            "--keep takes full-size tables, without --fast; --only takes one experiment and --keep"
        )
    if (shard or merge) and (keep_rows or pages or (shard and merge)):
        raise ValueError(
            "--shard and --merge make parts and tables: give one of them, and neither --keep nor --pages"
        )
    if merge:
        if names:
            raise ValueError("--merge makes the tables that its files are parts of: leave the names out")
        merged = merge_shards(merge, lambda fast: out or default_folder(fast))
        for name, made in merged.tables.items():
            print(f"{(out or default_folder(merged.fast)) / name}.parquet: {made.num_rows} rows")
        return
    folder = out or default_folder(fast)
    if shard:
        if not names:
            raise ValueError("--shard runs a part of experiments: name them")
        for path in make_shard(names, folder, shard_of(shard), fast=fast, rng=seed, executor=executor):
            print(f"wrote {path}; --merge makes a table of all shards")
        return
    if pages:
        for name in names or [name for name in PAGES if name != "run_times"]:  # that is about this machine
            print(f"wrote {write_page(name, page_of(name, folder))}")
        return
    if not names:
        width = max(map(len, known()))
        for name in known():
            minutes = getattr(get(name), "MINUTES", 1)
            print(f"{name:<{width}}  {f'{minutes} min' if minutes > 1 else '':>7}  {get(name).TITLE}")
        return
    for name in names:
        if only:
            rows = renewed(name, only, rng=seed)
        else:
            made = table(name, folder, fast=fast, rng=seed, executor=executor)
            rows = made.to_pylist()
        if not only:
            print(f"{folder / name}.parquet: {len(rows)} rows")
        if keep_rows and is_kept(name):
            print(f"wrote {keep(name, rows, seed)}")
        if keep_rows and name in PAGES:
            print(f"wrote {write_page(name, get(name).page(rows))}")


def default_folder(fast: bool) -> Path:
    return Path("results/tables-fast" if fast else "results/tables")


if __name__ == "__main__":
    run_app(app)
