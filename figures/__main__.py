"""`python -m figures [NAME ...]`: tables first, then pictures as .svg, .png and .pdf."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from experiments._tables import merge_shards
from figures import get
from figures import names as known
from figures._making import TABLES, make_figures, make_parts, shown_by
from specsim.cli import run_app
from specsim.cli._app import ending
from specsim.cli._options import Executor, shard_of, whole

PROGRAM = "python -m figures"
app = App(
    name=PROGRAM,
    help="Draw the figures from the tables of the experiments.",
    help_epilogue=ending("--list", "leviathan_figure_2", "overview --fast --out pictures", program=PROGRAM),
)


@app.default
def figures(
    *names: Annotated[str, Parameter(help="Figures to make; default: all.")],
    fast: Annotated[bool, Parameter(negative="", help="Simulate less.")] = False,
    out: Annotated[
        Path | None,
        Parameter(help="Folder; default: results/figures, with --fast results/figures-fast."),
    ] = None,
    seed: Annotated[int, Parameter(converter=whole, help="Seed of what is simulated.")] = 0,
    executor: Executor = None,
    shard: Annotated[
        str | None,
        Parameter(
            help="i/n: run only part i of n (from 0) of the cells of the tables, into files in the folder "
            "tables; --merge makes tables and pictures of all parts."
        ),
    ] = None,
    merge: Annotated[
        list[Path] | None,
        Parameter(
            negative="",
            consume_multiple=True,
            help="Make tables of the files that --shard wrote, and the figures that show them and no others.",
        ),
    ] = None,
    listed: Annotated[
        bool, Parameter(name="--list", negative="", help="Print the figures there are, and make none.")
    ] = False,
) -> None:
    """Make the figures: tables first, then pictures as .svg, .png and .pdf."""
    if listed:
        width = max(map(len, known()))
        for name in names or known():
            print(f"{name:<{width}}  {get(name).TITLE}")
        return
    if shard and merge:
        raise ValueError(
            "--shard runs a part of the tables, --merge puts all parts together: give one of them"
        )
    folder = out or default_folder(fast)
    if shard:
        for path in make_parts(names, folder, shard_of(shard), fast=fast, rng=seed, executor=executor):
            print(f"wrote {path}; --merge draws the figures of all shards")
        return
    if merge:
        merged = merge_shards(merge, lambda fast: (out or default_folder(fast)) / TABLES)
        folder, fast, seed = out or default_folder(merged.fast), merged.fast, merged.rng
        names = tuple(shown_by(names, merged.tables, fast=fast))
    made = make_figures(names, folder, fast=fast, rng=seed, executor=executor)
    for figure in made:
        print(f"{folder / figure} (.svg, .png, .pdf)")


def default_folder(fast: bool) -> Path:
    return Path("results/figures-fast" if fast else "results/figures")


if __name__ == "__main__":
    run_app(app)
