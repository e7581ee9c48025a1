"""Experiments, one file or folder for each table: what is computed or simulated, with one row for each cell
of the table.

An experiment is a module or a package of one of the folders `ROOMS`: the literature's curves and tables,
simulations of our own, measurements of the audit, and engines. Its docstring says what is computed, by which
formula, after which paper. `TITLE` says it in one line: what beside it has none is no experiment. `MINUTES`
says how long it takes on one core where that is more than a minute. It has either

- `run(*, fast, rng, progress)`, which returns all rows at once, or
- `cells(*, fast)`, a list of tuples, and `run_cell(cell, *, fast, rng)`, the row of one of them, which
  depends on nothing else: such an experiment can be interrupted and continued, and its cells can run in
  parallel.

A row is a dict of plain Python values with the same keys in every row; `fast` asks for less work, `rng` is
the seed, an integer. `page(rows)`, where there is one, is the Markdown page that shows the table in
docs/results; its text is in pages/. `_tables` keeps tables on disk, `_kept` those in the repository. Listing
the experiments imports none of them.
"""

import importlib
import re
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from specsim.core._files import atomic_write
from specsim.core._progress import Progress, ShowProgress, shows_progress, told, working
from specsim.core._types import Floats, Ints, check_known

__all__ = [
    "ROOMS", "ROOT", "Floats", "Ints", "Progress", "Row", "ShowProgress",
    "atomic_write", "cell_rows", "get", "names", "number_of_cells", "path_of", "shows_progress", "told",
]  # fmt: skip

Row = dict[str, Any]
ROOT = Path(__file__).parents[1]
ROOMS = ("literature", "simulation", "audit", "engines")


@cache
def _homes() -> dict[str, str]:
    """{name of an experiment: the folder that it is in}, by the text of the files."""
    here = Path(__file__).parent
    found = {}
    for room in ROOMS:
        for file in (*here.glob(f"{room}/*.py"), *here.glob(f"{room}/*/__init__.py")):
            if re.search("^TITLE = ", file.read_text(encoding="utf-8"), re.MULTILINE):
                found[file.parent.name if file.stem == "__init__" else file.stem] = room
    return found


def names() -> list[str]:
    """The names of all experiments, read off the files.

    >>> "leviathan_figure_2" in names()
    True
    """
    return sorted(_homes())


def path_of(name: str) -> str:
    """Return the dotted name of an experiment's module. Raises ValueError, with the nearest name, for an
    unknown `name`."""
    check_known("experiment", name, names())
    return f"{__name__}.{_homes()[name]}.{name}"


def get(name: str) -> ModuleType:
    """Return the module of an experiment. Raises ValueError for an unknown `name`."""
    return importlib.import_module(path_of(name))


def number_of_cells(name: str, *, fast: bool) -> int:
    """The number of parts in which an experiment runs: 1 for one that runs all at once."""
    module = get(name)
    return len(module.cells(fast=fast)) if hasattr(module, "cells") else 1


def cell_rows(name: str, number: int, fast: bool, rng: int, progress: Progress | None = None) -> list[Row]:
    """The rows of part `number` of an experiment, from 0; another process than that of the other parts may
    run it."""
    module = get(name)
    with working(False, name):  # what it calls shows no progress of its own, in a worker as well
        if not hasattr(module, "cells"):
            found: list[Row] = module.run(fast=fast, rng=rng, progress=progress)
            return found
        return [module.run_cell(module.cells(fast=fast)[number], fast=fast, rng=rng)]
