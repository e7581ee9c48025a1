"""Experiments, one file each: what is computed or simulated, as a table with one row for each cell.

An experiment is a module, or a package, of this folder. Its docstring says what is computed, by which formula, after
which paper; `TITLE` says it in a line; and it has either

- `run(*, fast, rng, progress)`, which returns all rows at once, for what takes seconds, or
- `cells(*, fast)`, a list, and `run_cell(cell, *, fast, rng)`, the row of one of them, which depends on nothing else:
  an experiment that simulates is then taken up again where it was interrupted.

A row is a dict of plain Python values, with the same keys in every row; `fast` asks for the same cells with less work,
`rng` is the seed, an integer. `tables.py` keeps the rows on disk. Listing the experiments imports none of them.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from specsim.core._registry import check_known, modules_beside
from specsim.simulation._counting import Progress

__all__ = ["Row", "cell_rows", "get", "names", "number_of_cells", "rows"]

Row = dict[str, Any]

#: Folders that hold no table of their own.
SHARED = ("audit_power", "kill_matrix", "published")


def names() -> list[str]:
    """The names of all experiments, read off the files.

    >>> "leviathan_figure_2" in names()
    True
    """
    return [name for name in modules_beside(__file__) if not name.startswith("_") and name not in SHARED]


def get(name: str) -> ModuleType:
    """The module of the experiment called `name`. Raises ValueError, with the nearest name, if there is none."""
    check_known("experiment", name, names())
    return importlib.import_module(f"{__name__}.{name}")


def number_of_cells(name: str, *, fast: bool) -> int:
    """The number of parts in which an experiment runs: 1 for one that runs all at once."""
    module = get(name)
    return len(module.cells(fast=fast)) if hasattr(module, "cells") else 1


def cell_rows(name: str, number: int, *, fast: bool, rng: int) -> list[Row]:
    """The rows of part `number` of an experiment, from 0, which may be run in another process than the others."""
    module = get(name)
    if not hasattr(module, "cells"):
        found: list[Row] = module.run(fast=fast, rng=rng, progress=None)
        return found
    return [module.run_cell(module.cells(fast=fast)[number], fast=fast, rng=rng)]


def rows(
    name: str, *, fast: bool, rng: int, done: int = 0, progress: Progress | None = None
) -> Iterator[Row]:
    """The rows of an experiment, in order and each as soon as it is there, without the first `done`.

    `progress` is called after each cell.
    """
    module = get(name)
    if not hasattr(module, "cells"):
        yield from module.run(fast=fast, rng=rng, progress=progress)[done:]
        return
    cells = module.cells(fast=fast)
    for number, cell in enumerate(cells[done:], done + 1):
        yield module.run_cell(cell, fast=fast, rng=rng)
        if progress is not None:
            progress(number, len(cells))
