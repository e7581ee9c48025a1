"""Registries built from file names: to add an entry, add a file."""

import difflib
import pkgutil
from collections.abc import Iterable, Sequence
from pathlib import Path

#: How similar a name must be, from 0 to 1, to be suggested in place of one that is not known.
SIMILAR = 0.6


def modules_beside(file: str) -> list[str]:
    """The names of modules and packages in the folder of `file`, sorted; nothing is imported."""
    return sorted(module.name for module in pkgutil.iter_modules([str(Path(file).parent)]))


def suggestion(name: str, known: Iterable[str]) -> str:
    """The end of a sentence: which one of `known` may have been meant by `name`, if any resembles it.

    >>> "unknown rule 'standart'" + suggestion("standart", ["block", "standard"])
    "unknown rule 'standart'; did you mean 'standard'?"
    >>> "unknown rule 'nosuch'" + suggestion("nosuch", ["block", "standard"])
    "unknown rule 'nosuch'."
    """
    if not isinstance(name, str):
        return "."
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=SIMILAR)
    return f"; did you mean {near[0]!r}?" if near else "."


def check_known(kind: str, name: str, known: Sequence[str]) -> None:
    """Raise ValueError, with the nearest name, unless `name` is one of the `known`.

    >>> check_known("figure", "chen_figure", ["chen_figure_1", "leviathan_figure_2"])
    Traceback (most recent call last):
    ...
    ValueError: unknown figure 'chen_figure'; did you mean 'chen_figure_1'? There are: chen_figure_1,
    leviathan_figure_2
    """
    if name not in known:
        raise ValueError(f"unknown {kind} {name!r}{suggestion(name, known)} There are: {', '.join(known)}")
