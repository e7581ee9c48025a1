"""`python -m figures [NAME ...]`: tables first, then pictures as .svg, .png and .pdf."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from figures import get
from figures import names as known
from figures._making import make_figures
from specsim.cli import run_app
from specsim.cli._app import default, ending
from specsim.cli._options import HELP, WHOLE, Flag

PROGRAM = "python -m figures"
app = App(
    name=PROGRAM,
    help="Draw the figures from the tables of the experiments.",
    help_format="plaintext",
    help_epilogue=ending("--list", "leviathan_figure_2", "overview --fast --out pictures", program=PROGRAM),
)


@default(app)
def figures(
    *names: Annotated[str, Parameter(help="Figures to make; default: all.")],
    fast: Flag = False,
    out: Path | None = None,
    seed: Annotated[int, WHOLE] = 0,
    executor: Annotated[str | None, HELP["executor"]] = None,
    listed: Annotated[bool, Parameter(name="--list", negative="")] = False,
) -> None:
    """Make the figures: tables first, then pictures as .svg, .png and .pdf.

    Args:
        fast: Simulate less.
        out: Folder; default: results/figures, with --fast results/figures-fast.
        seed: Seed of what is simulated.
        listed: Print the figures there are, and make none.
    """
    if listed:
        width = max(map(len, known()))
        for name in names or known():
            print(f"{name:<{width}}  {get(name).TITLE}")
        return
    folder = out or Path("results/figures-fast" if fast else "results/figures")
    for figure in make_figures(names, folder, fast=fast, rng=seed, executor=executor, progress="lines"):
        print(f"{folder / figure} (.svg, .png, .pdf)")


if __name__ == "__main__":
    run_app(app)
