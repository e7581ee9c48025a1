"""Figures, one file for each picture, drawn from tables of experiments; nothing is simulated here.

A figure is a module of this folder with `TITLE`, `TABLES`, the names of the experiments whose tables it
shows, and `draw(*tables)`, which takes these tables in that order and returns a matplotlib figure. Files with
an underscore are shared: `_making.py` makes tables and pictures. Listing the figures imports neither
matplotlib nor pyarrow.
"""

import importlib
from types import ModuleType

from specsim.core._files import modules_beside
from specsim.core._types import check_known

__all__ = ["get", "names"]


def names() -> list[str]:
    """The names of all figures, read off the files.

    >>> "leviathan_figure_2" in names()
    True
    """
    return [name for name in modules_beside(__file__) if not name.startswith("_")]


def get(name: str) -> ModuleType:
    """The module of the figure called `name`. Raises ValueError, with the nearest name."""
    check_known("figure", name, names())
    return importlib.import_module(f"{__name__}.{name}")
