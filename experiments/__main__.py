"""`python -m experiments [NAME ...]`: the tables of the experiments, as Parquet."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from experiments import get
from experiments import names as known
from experiments._tables import table
from specsim.cli import run_app
from specsim.cli._options import whole
from specsim.cli._terminal import progress_bar

app = App(name="python -m experiments", help="Run experiments, and keep their tables.")


@app.default
def experiments(
    *names: Annotated[str, Parameter(help="Experiments to run; default: all.")],
    fast: Annotated[bool, Parameter(negative="", help="Simulate less.")] = False,
    out: Annotated[
        Path | None,
        Parameter(help="Folder; default: results/tables, with --fast results/tables-fast."),
    ] = None,
    seed: Annotated[int, Parameter(converter=whole, help="Seed of what is simulated.")] = 0,
    listed: Annotated[
        bool, Parameter(name="--list", negative="", help="Print the experiments there are, and run none.")
    ] = False,
) -> None:
    """Run the experiments; a table that is already there, made by the same code and seed, is left as it is."""
    chosen = names or tuple(known())
    if listed:
        width = max(map(len, chosen))
        for name in chosen:
            print(f"{name:<{width}}  {get(name).TITLE}")
        return
    for name in chosen:
        get(name)  # an unknown name is refused before anything is run
    folder = out or Path("results/tables-fast" if fast else "results/tables")
    for name in chosen:
        with progress_bar(name, " cells") as progress:
            made = table(name, folder, fast=fast, rng=seed, progress=progress)
        print(f"{folder / name}.parquet: {made.num_rows} rows")


if __name__ == "__main__":
    run_app(app)
