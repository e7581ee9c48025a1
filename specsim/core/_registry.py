"""Registries built from file names: to add an entry, add a file."""

import difflib
import pkgutil
from collections.abc import Iterable, Sequence
from pathlib import Path


def modules_beside(file: str) -> list[str]:
    """The names of modules and packages in the folder of `file`, sorted; nothing is imported."""
    return sorted(module.name for module in pkgutil.iter_modules([str(Path(file).parent)]))


def nearest(name: str, known: Iterable[str]) -> str:
    """The one of `known` that is most similar to `name`.

    >>> nearest("standart", ["block", "standard"])
    'standard'
    """
    return difflib.get_close_matches(name, list(known), n=1, cutoff=0.0)[0]


def check_known(kind: str, name: str, known: Sequence[str]) -> None:
    """Raise ValueError, with the nearest name, unless `name` is one of the `known`.

    >>> check_known("figure", "chen_figure", ["chen_figure_1", "leviathan_figure_2"])
    Traceback (most recent call last):
    ...
    ValueError: unknown figure 'chen_figure'; did you mean 'chen_figure_1'? There are: chen_figure_1,
    leviathan_figure_2
    """
    if name not in known:
        raise ValueError(
            f"unknown {kind} {name!r}; did you mean {nearest(name, known)!r}? There are: {', '.join(known)}"
        )
