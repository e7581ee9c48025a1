"""`python -m experiments [NAME ...]`: the tables of the experiments, as Parquet, and the pages that show
them.
"""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from experiments import get
from experiments import names as known
from experiments._kept import KEPT, PAGES, keep, page_of, renewed, write_page
from experiments._tables import table
from specsim.cli import run_app
from specsim.cli._app import default, ending
from specsim.cli._options import HELP, WHOLE, Flag

PROGRAM = "python -m experiments"
app = App(
    name=PROGRAM,
    help="Run experiments and write their tables.",
    help_format="plaintext",
    help_epilogue=ending("", "leviathan_figure_2", "precision --fast --out tables", program=PROGRAM),
)


@default(app)
def experiments(
    *names: Annotated[str, Parameter(help="Experiments to run; without any they are listed.")],
    fast: Flag = False,
    out: Path | None = None,
    seed: Annotated[int, WHOLE] = 0,
    executor: Annotated[str | None, HELP["executor"]] = None,
    keep_rows: Annotated[bool, Parameter(name="--keep", negative="")] = False,
    only: Annotated[list[str] | None, Parameter(negative="", consume_multiple=True)] = None,
    pages: Flag = False,
) -> None:
    """Run experiments; a current table, made by the same code and seed, is kept.

    Args:
        fast: Do less work: fewer steps, cells or seeds.
        out: Folder of the tables; default: results/tables, with --fast results/tables-fast.
        seed: Seed of what is simulated.
        keep_rows: Also write what the repository keeps: experiments/kept/NAME.json and the page in
            docs/results.
        only: With --keep: run only the cells that begin with these names again, and take the others from the
            kept rows.
        pages: Write the pages in docs/results from the kept rows and from the tables of quick experiments.
    """
    for name in names:
        get(name)  # an unknown name is refused before anything is run
    if (keep_rows and fast) or (only and not (keep_rows and len(names) == 1)):
        raise ValueError(
            "--keep takes full-size tables, without --fast; --only takes one experiment and --keep"
        )
    folder = out or Path("results/tables-fast" if fast else "results/tables")
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
            rows = table(name, folder, fast=fast, rng=seed, executor=executor).to_pylist()
            print(f"{folder / name}.parquet: {len(rows)} rows")
        if keep_rows and name in KEPT:
            print(f"wrote {keep(name, rows, seed)}")
        if keep_rows and name in PAGES:
            print(f"wrote {write_page(name, get(name).page(rows))}")


if __name__ == "__main__":
    run_app(app)
