"""Registries built from file names: to add an entry, add a file."""

import difflib
import pkgutil
from collections.abc import Iterable, Sequence
from pathlib import Path


def modules_beside(file: str) -> list[str]:
    """The names of modules and packages in the folder of `file`, sorted; nothing is imported."""
    return sorted(module.name for module in pkgutil.iter_modules([str(Path(file).parent)]))


def suggestion(name: str, known: Iterable[str], title: str | None = None) -> str:
    """The end of a sentence: the one of `known` that `name` resembles, else all of them, after a `title`.

    >>> "unknown rule 'standart'" + suggestion("standart", ["block", "standard"], "Rules")
    "unknown rule 'standart'; did you mean 'standard'?"
    """
    known = list(known)
    near = difflib.get_close_matches(name, known, n=1) if isinstance(name, str) else []
    if near:
        return f"; did you mean {near[0]!r}?"
    return f". {title}: {', '.join(known)}" if title else "."


def check_known(kind: str, name: str, known: Sequence[str]) -> None:
    """Raise ValueError, with the nearest name, all or their list, unless `name` is one of the `known`."""
    if name not in known:
        title = "There are" if len(known) <= 40 else None  # of more names their list is more readable
        meant = suggestion(name, known, title).removesuffix(".") or f"; 'specsim list {kind}s' lists them all"
        raise ValueError(f"unknown {kind} {name!r}{meant}")
