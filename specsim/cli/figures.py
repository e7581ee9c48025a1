"""`specsim figures`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from specsim.cli.app import app
from specsim.cli.options import Executor, whole
from specsim.cli.terminal import progress_bar


@app.command
def figures(
    *names: Annotated[str, Parameter(help="Figures to make; default: all.")],
    fast: Annotated[bool, Parameter(negative="", help="Simulate less.")] = False,
    out: Annotated[
        Path | None,
        Parameter(help="Folder; default: results/figures, with --fast results/figures-fast."),
    ] = None,
    seed: Annotated[int, Parameter(converter=whole, help="Seed of what is simulated.")] = 0,
    executor: Executor = None,
    listed: Annotated[
        bool, Parameter(name="--list", negative="", help="Print the figures there are, and make none.")
    ] = False,
) -> None:
    """Make the literature's figures again: tables first, then pictures as .svg, .png and .pdf."""
    from specsim.figures import get
    from specsim.figures import names as known

    if listed:
        width = max(map(len, known()))
        for name in names or known():
            print(f"{name:<{width}}  {get(name).TITLE}")
        return
    from specsim.figures.making import make_figures

    folder = out or Path("results/figures-fast" if fast else "results/figures")
    with progress_bar("figures", " cells") as progress:
        made = make_figures(names, folder, fast=fast, rng=seed, executor=executor, progress=progress)
    for figure in made:
        print(f"{folder / figure.name} (.svg, .png, .pdf): {'drawn' if figure.drawn else 'unchanged'}")
