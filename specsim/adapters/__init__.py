"""Adapters: the verifiers and decoders of inference engines, in the form that `specsim.audit` takes.

There is one file for each engine in production, which names the page with the signature that it adapts.
`adapt` makes a verifier or a decoder of any function of that signature, a fork's included, and another
function adapts the engine's own. `get` finds the latter by name, and imports the engine only then.

Other packages add engines as entry points of the group "specsim.engines". The name has letters, digits, "-",
"_" and "."; the object is a function that makes the verifier, and its parameters are the engine's:

    [project.entry-points."specsim.engines"]
    their-engine = "their_package.audits:verifier"

>>> "hf" in names()
True
"""

import importlib
import inspect
import re
from collections.abc import Callable
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from specsim import rules
from specsim.adapters._contract import Verifier, declares
from specsim.adapters._engines import EngineMissing, Function, engine_function, made
from specsim.core._files import read_table
from specsim.core._numbers import real, whole
from specsim.core._parameters import read_options, split_name
from specsim.core._types import suggestion

__all__ = ["EngineMissing", "Verifier", "declares", "get", "names"]

#: The entry points of other packages' engines, and their names: no function of a module, and no parameters.
GROUP, SIMPLE = "specsim.engines", re.compile(r"[\w.-]+")


#: How a parameter is read, by the type of its default.
READERS: dict[type, Callable[[str], Any]] = {int: whole, float: real, str: str}

__dir__ = __all__.copy  # for completion

#: The engines that specsim adapts itself: where the verifier or decoder of each is made, and what it is.
ENGINES = read_table("engines")


def catalogue() -> dict[str, str]:
    """What is audited of each engine, by its name; for an engine of another package, which package.

    A name that cannot be used is there too, with the reason."""
    found = {name: what for name, (_, what) in ENGINES.items()}
    for name, points in _of_others().items():
        found[name] = _clash(name) or f"{points[0].value}, of {_package(points[0])}"
    return dict(sorted(found.items()))


def names() -> list[str]:
    """Return the names of the engines that have an adapter; `catalogue` describes each.

    Returns
    -------
    list of str

    Examples
    --------
    >>> names()[:2]
    ['flashinfer', 'hf']
    """
    return [name for name in catalogue() if is_engine(name)]


def is_engine(reference: str) -> bool:
    """Return whether a text names an engine, with or without parameters, and not a function of a module.

    >>> is_engine("hf:generate:top_k=3"), is_engine("mine:verify")
    (True, False)
    """
    name = name_of(reference)
    simple = SIMPLE.fullmatch(name) is not None  # no function of a module
    return name in ENGINES or (simple and name not in rules.names() and name in _of_others())


def name_of(reference: str) -> str:
    """The name in a reference with parameters."""
    return split_name(reference, ())[0]


def get(name: str) -> Verifier:
    """Return an engine's own verifier or decoder.

    Parameters
    ----------
    name : str
        A name of `names`, with parameters after a colon: "hf:generate:temperature=0.7".

    Returns
    -------
    callable
        A verifier or decoder of the contract of `specsim.audit`.

    Raises
    ------
    ValueError
        If the name or a parameter is unknown, or two packages have an engine of the name.
    EngineMissing
        A ValueError, if the engine is not installed.

    Examples
    --------
    >>> get("hf:generate:temprature=0.7")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    ValueError: hf:generate: no parameter 'temprature'; it has temperature, ...
    """
    name, given = split_name(name, ())
    if not is_engine(name):
        raise ValueError(f"unknown engine {name!r}{suggestion(name, names(), 'Engines')}")
    make = _maker(name)
    known = {parameter: type(one.default) for parameter, one in inspect.signature(make).parameters.items()}
    for parameter, kind in known.items():
        if kind not in READERS:
            raise ValueError(
                f"{name}: the parameter {parameter} needs a number or a text as its default; let the entry "
                "point name a function that makes the verifier"
            )
    readers = {parameter: READERS[kind] for parameter, kind in known.items()}
    verifier = made(name, make, **({} if given is None else read_options(name, given, readers)))
    if not callable(verifier):
        raise ValueError(
            f"{name}: its entry point made {verifier!r}, not a verifier; let it name a function that makes "
            "one"
        )
    return verifier


def _maker(name: str) -> Function:
    """The function that makes an engine's verifier. Of an entry point, what it names is imported."""
    if clash := _clash(name):
        raise ValueError(f"{name}: {clash}; uninstall one of them")
    if name in ENGINES:
        module, _, function = ENGINES[name][0].partition(":")
        return getattr(importlib.import_module(f"{__name__}._{module}"), function)
    (point,) = _of_others()[name]
    return engine_function(point.value.partition("[")[0].strip(), f"install {_package(point)} again")


@cache
def _of_others() -> dict[str, list[EntryPoint]]:
    """The entry points of other packages, by name; nothing of them is imported."""
    found: dict[str, list[EntryPoint]] = {}
    for point in entry_points(group=GROUP):
        found.setdefault(point.name, []).append(point)
    return found


def _clash(name: str) -> str:
    """Why an engine of this name cannot be used, if it cannot."""
    owners = [_package(point) for point in _of_others().get(name, [])]
    if name in ENGINES or name in rules.names():
        owners.insert(0, "specsim-decoding")
    if len(owners) > 1:
        return f"{len(owners)} packages have this name: {', '.join(owners)}"
    if name in ENGINES or SIMPLE.fullmatch(name):
        return ""
    return f"the name has characters other than letters, digits, '-', '_' and '.'; tell {owners[0]}"


def _package(point: EntryPoint) -> str:
    """The name and the version of the package that an entry point belongs to."""
    return f"{point.dist.name} {point.dist.version}" if point.dist else "a package without a name"
