"""Some files of an engine, imported without the rest of it: from an installed wheel or from a clone.

The code that verifies is a few files of a large package whose imports ask for a GPU, a compiler, or a dozen
other packages. `part` imports the modules that it is given from their files. Every other module of the same
packages is a *stand-in*, as are packages that are named and missing. Any name can be imported from it, and is
a stand-in again: a decorator that changes nothing, a base class, an annotation, a logger, a flag that is not
set. To count with one, to go through it or to hand it to a library raises, so that what an engine needs to
verify is not left out unnoticed.

Nothing of it stays in `sys.modules`, so an engine that is installed whole can be imported afterwards."""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from specsim.adapters._engines import EngineMissing

#: The names that a module is given in the place of its own.
Given = Mapping[str, Mapping[str, Any]]


def installed_folder(package: str, install: str) -> Path:
    """The folder in which `package` lies; it is not imported. Raises EngineMissing with `install`."""
    try:
        found = importlib.util.find_spec(package)
    except ValueError:  # a module without a specification
        found = None
    places = found and found.submodule_search_locations
    if not places:
        raise EngineMissing(f"{package} is not there (no installed package of that name); {install}")
    return Path(next(iter(places))).parent


def clone_folder(source: str, engine: str, repository: str, module: str) -> Path:
    """The folder `source`, a clone of `repository` that holds `module`. Raises EngineMissing otherwise."""
    file = f"{module.replace('.', '/')}.py"
    remedy = f"install: clone {repository} and name its folder: specsim audit {engine}:source=FOLDER"
    if not source:
        raise EngineMissing(f"{engine} is not there (it is read from a clone of its repository); {remedy}")
    folder = Path(source).expanduser().resolve()
    if not (folder / file).is_file():
        raise EngineMissing(f"{engine} is not there ({folder} has no {file}); {remedy}")
    return folder


@contextmanager
def parts(
    folder: Path, *names: str, absent: Sequence[str] = (), given: Given | None = None
) -> Iterator[tuple[ModuleType, ...]]:
    """The modules `names` of an engine in `folder`, in `sys.modules` until the end; their files are run.
    Top-level packages that are `absent` are stand-ins where not installed, and modules that are `given` have
    these names. Raises EngineMissing for a module without a file, or that cannot be imported."""
    given = given or {}
    files = {name: _file(folder, name) for name in names}
    finder = _Finder(files, given, {name.partition(".")[0] for name in (*names, *given)})
    with _found_by(finder, _Finder({}, {}, set(absent))):
        try:
            with warnings.catch_warnings(action="ignore"):  # the engine's own, of its style
                modules = tuple(importlib.import_module(name) for name in names)
        except (Exception, SystemExit) as error:  # an engine of another version may ask for anything
            why = f"{type(error).__name__}: {error}"
            raise EngineMissing(
                f"{names[0]} of {folder} is not there ({why}); install what is missing, or another version"
            ) from error
        yield modules


def part(folder: Path, *names: str, absent: Sequence[str] = (), given: Given | None = None) -> ModuleType:
    """The first of the modules `names`, which needs the others. See `parts`."""
    with parts(folder, *names, absent=absent, given=given) as modules:
        return modules[0]


def _file(folder: Path, name: str) -> Path:
    place = folder.joinpath(*name.split("."))
    for file in (place / "__init__.py", place.with_name(f"{place.name}.py")):
        if file.is_file():
            return file
    raise EngineMissing(f"{name} is not there ({place}.py is missing); install another version")


@contextmanager
def _found_by(first: "_Finder", last: "_Finder") -> Iterator[None]:
    """Modules are found by `first`, else as always, else by `last`; what is imported is forgotten again."""
    owned = first.packages | last.packages

    def ours() -> dict[str, ModuleType]:
        return {name: module for name, module in sys.modules.items() if name.partition(".")[0] in owned}

    before = {name: module for name, module in ours().items() if name.partition(".")[0] in first.packages}
    for name in before:
        del sys.modules[name]
    kept, path = set(ours()), list(sys.path)
    sys.meta_path[:] = [first, *sys.meta_path, last]
    try:
        yield
    finally:
        sys.path[:] = path  # engines extend it
        sys.meta_path[:] = [finder for finder in sys.meta_path if finder not in (first, last)]
        for name, module in ours().items():
            if name not in kept and (name.partition(".")[0] in first.packages or isinstance(module, _Module)):
                del sys.modules[name]
        sys.modules.update(before)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds all modules of `packages`: in `files`, or as stand-ins with the names `given`."""

    def __init__(self, files: Mapping[str, Path], given: Given, packages: set[str]):
        self.files, self.given, self.packages = files, given, packages

    def find_spec(
        self, fullname: str, path: Any = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] not in self.packages:
            return None
        if file := self.files.get(fullname):
            inside = [str(file.parent)] if file.name == "__init__.py" else None
            return importlib.util.spec_from_file_location(fullname, file, submodule_search_locations=inside)
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = _Module(spec.name)
        module.__dict__.update(self.given.get(spec.name, {}))
        return module

    def exec_module(self, module: ModuleType) -> None:
        """A stand-in has no code."""


class _Module(ModuleType):
    """A module that has every name."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _stand_in(f"{self.__name__}.{name}")


class _Anything(type):
    """The type of the stand-ins, which are classes, so that they can be bases and annotations."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _stand_in(f"{cls.__qualname__}.{name}")

    def __call__(cls, *arguments: Any, **named: Any) -> Any:
        if "stands_in" not in cls.__dict__:  # a class of the engine, with a stand-in as base
            return super().__call__(*arguments, **named)
        if len(arguments) == 1 and not named and callable(arguments[0]):
            return arguments[0]  # a decorator
        return _stand_in(f"{cls.__qualname__}()")

    def __getitem__(cls, _: Any) -> Any:
        return cls

    __iter__ = None  # or it would be one without an end

    def __bool__(cls) -> bool:
        return False


def _stand_in(name: str) -> Any:
    names = {"stands_in": True, "__qualname__": name, "__init_subclass__": lambda *_, **__: None}
    return _Anything(name, (), names)


class Unpinned:
    """PyTorch for a module that asks for pinned memory, which needs an accelerator: it gets other memory."""

    def __getattr__(self, name: str) -> Any:
        import torch

        made = getattr(torch, name)
        if name not in ("arange", "empty", "full", "ones", "tensor", "zeros"):
            return made
        return lambda *arguments, pin_memory=False, **named: made(*arguments, **named)
