"""The files that an experiment depends on: its own, and the modules of the checkout that they import,
transitively.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import experiments

__all__ = ["ROOT", "sources"]

ROOT = Path(__file__).parents[1]
PACKAGES = ("specsim", "experiments")
#: The packages whose `__init__.py` is all that an experiment imports of them: it loads the experiments by
#: name.
BY_NAME = ("experiments",)
#: What models are read from; no import shows that.
DATA = ("specsim/data/*.npz",)


def sources(name: str) -> list[Path]:
    """The files that the rows of the experiment `name` depend on, in order."""
    found: set[Path] = {path for pattern in DATA for path in ROOT.glob(pattern)}
    folder = ROOT.joinpath(*experiments.path_of(name).split("."))
    waiting = list(folder.rglob("*.py")) if folder.is_dir() else [folder.with_suffix(".py")]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting += _imported(path)
    return sorted(found)


@cache
def _imported(path: Path) -> list[Path]:
    """The files that a file imports, at its head or within functions.

    A registry imports its files by name, so that all of its folder counts.
    """
    text = path.read_text(encoding="utf-8")
    found = [file for dotted in _imported_names(text) for file in _files_of(*dotted)]
    package = ".".join(path.relative_to(ROOT).parent.parts)
    if path.name == "__init__.py" and "import_module(" in text and package not in BY_NAME:
        found += path.parent.rglob("*.py")
    return found


def _imported_names(text: str) -> set[tuple[str, str]]:
    """(module, name) for each import of a module of this checkout, and for each attribute of one that is
    used.
    """
    tree = ast.parse(text)
    found: set[tuple[str, str]] = set()
    bound: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                found.add((alias.name, ""))
                bound |= {alias.asname: alias.name} if alias.asname else {alias.name.partition(".")[0]: ""}
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                found.add((node.module or "", alias.name))
                bound[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            first, _, rest = ast.unparse(node.value).partition(".")
            if first in bound:
                found.add((".".join(filter(None, (bound[first] or first, rest))), node.attr))
    return {name for name in found if name[0].partition(".")[0] in PACKAGES}


def _files_of(module: str, name: str) -> Iterator[Path]:
    """The files that `from module import name` reads: packages on the way, and where the name is defined.

    A package that loads its public names lazily has a stub which says from where.
    """
    parts = module.split(".")
    yield from (
        path
        for depth in range(1, len(parts))
        if (path := ROOT.joinpath(*parts[:depth], "__init__.py")).is_file()
    )
    package = ROOT.joinpath(*parts)
    for path in (package.with_suffix(".py"), package / "__init__.py"):
        if path.is_file():
            yield path
    inside = package / name
    if name and (inside.with_suffix(".py").is_file() or (inside / "__init__.py").is_file()):
        yield from _files_of(f"{module}.{name}", "")
    elif (stub := package / "__init__.pyi").is_file():
        for node in ast.parse(stub.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ImportFrom) and name in {alias.name for alias in node.names}:
                home = f"{module}.{node.module}" if node.module else module
                yield from _files_of(home, name)
