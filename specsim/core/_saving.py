"""Results as values: whether two are equal, and files that hold one.

A file is JSON with the SHA-256 of its own content. Dataclasses, tuples and enumerations are written with the
address of their class; an object that is neither needs `saved()`, the arguments that its class makes it from.
`CLASSES` lists the classes that a file can hold: nothing else is imported or made because a file names it."""

import importlib
import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from specsim.core._files import PathLike, atomic_write, open_file, read_table
from specsim.core._json import read_sealed, rebuilding, sealed
from specsim.core._provenance import specsim_version
from specsim.core._types import check_arguments, checked, dtype_of

FORMAT = "specsim result 1"

#: The classes that a file can hold, by the modules that define them. A file names a class by its package,
#: `specsim.simulation.Simulation`, whichever module of the package that is.
CLASSES: dict[str, list[str]] = read_table("results")


def equal(one: Any, other: Any) -> bool:
    """Whether two values are the same, arrays and NaN included; of dataclasses, the fields that compare."""
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        one, other = np.asarray(one), np.asarray(other)
        same = one.shape == other.shape
        return same and bool(np.all((one == other) | ((one != one) & (other != other))))
    if is_dataclass(one):
        names = [field.name for field in fields(one) if field.compare]
        same = type(one) is type(other)
        return same and all(equal(getattr(one, name), getattr(other, name)) for name in names)
    if isinstance(one, Mapping):
        same = isinstance(other, Mapping) and one.keys() == other.keys()
        return same and all(equal(value, other[key]) for key, value in one.items())
    if isinstance(one, tuple | list):
        same = isinstance(other, type(one)) and len(one) == len(other)
        return same and all(equal(*pair) for pair in zip(one, other, strict=True))
    return bool(one == other or (one != one and other != other))


def save(result: Any, path: PathLike) -> None:
    """Write `result` to `path` in one step. Raises TypeError for what no file can hold, and OSError."""
    document = sealed({"format": FORMAT, "specsim": specsim_version(), "result": encoded(result)})
    with atomic_write(path) as temporary:
        temporary.write_text(json.dumps(document, allow_nan=False), encoding="utf-8")


@checked
def load(path: PathLike) -> Any:
    """Read a result from a file that its `save` wrote.

    Parameters
    ----------
    path : path
        The file.

    Returns
    -------
    Simulation, Sweep, Comparison, Audit, …
        Equal to what was saved, with its provenance.

    Raises
    ------
    ValueError
        If the file is damaged, no result, or of a version with other results.

    Examples
    --------
    >>> import tempfile, specsim
    >>> run = specsim.simulate([0.5, 0.5], [0.8, 0.2], steps=100, rng=1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run.save(f"{folder}/run.json")
    ...     load(f"{folder}/run.json") == run
    True
    """
    document = read_sealed(Path(path), FORMAT, None, "save it again")
    version = f"it is by specsim {document.get('specsim')}, this is {specsim_version()}"
    with rebuilding(path, f"{version}; run it again"):
        return show_once(decoded(document["result"]))


def show_once(result: Any) -> Any:
    """`result`, after it was shown: what its values make impossible is raised where the file is known."""
    if not hasattr(result, "save"):
        raise TypeError(f"{type(result).__name__} is no result")
    for part in result.parts():
        str(part)
    result.to_dict(), result.records(), str(result)
    return result


def is_result(path: PathLike) -> bool:
    """Whether a file looks like one of `save`, whole or not."""
    with open_file(path) as file:
        return file.read(64).startswith(b'{"format": "specsim result')


def encoded(value: Any) -> Any:
    """`value` as JSON holds it. Raises TypeError for what no file can hold."""
    if isinstance(value, Enum):
        return {"class": _name(value), "value": value.value}
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"float": str(float(value))}
    if isinstance(value, Fraction):
        return {"fraction": str(value)}
    if isinstance(value, np.ndarray):
        kind, shape = value.dtype.name, [*value.shape]
        return {"array": [encoded(one) for one in value.ravel().tolist()], "dtype": kind, "shape": shape}
    if isinstance(value, np.generic):
        return encoded(value.item())
    if hasattr(value, "saved"):
        return {"class": _name(value), "fields": {k: encoded(v) for k, v in value.saved().items()}}
    if is_dataclass(value):
        names = [field.name for field in fields(value) if field.init]
        return {"class": _name(value), "fields": {name: encoded(getattr(value, name)) for name in names}}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {"class": _name(value), "fields": {k: encoded(v) for k, v in value._asdict().items()}}
    if isinstance(value, tuple):
        items = [encoded(item) for item in value]
        return {"tuple": items} if type(value) is tuple else {"class": _name(value), "items": items}
    if isinstance(value, list):
        return [encoded(item) for item in value]
    if isinstance(value, Mapping):
        return {"mapping": [[encoded(key), encoded(item)] for key, item in value.items()]}
    raise TypeError(f"a {type(value).__name__} cannot be written to a file")


def decoded(value: Any) -> Any:
    if isinstance(value, list):
        return [decoded(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "class" in value:
        made = _class(value["class"])
        if "fields" in value:
            given = {name: decoded(item) for name, item in value["fields"].items()}
            check_arguments(made, (), given)
            return made(**given)
        return made(decoded(value["items"]) if "items" in value else value["value"])
    if "array" in value:
        kind = dtype_of(value["dtype"])
        return np.array([decoded(one) for one in value["array"]], dtype=kind).reshape(value["shape"])
    if "mapping" in value:
        return {decoded(key): decoded(item) for key, item in value["mapping"]}
    if "tuple" in value:
        return tuple(decoded(item) for item in value["tuple"])
    return Fraction(value["fraction"]) if "fraction" in value else float(value["float"])


def _name(value: Any) -> str:
    """The address of the class of `value` in a file. Raises TypeError for a class that no file can hold."""
    kind = type(value)
    name = f"specsim.{kind.__module__.split('.')[1]}.{kind.__qualname__}"
    if _class(name) is not kind:
        raise TypeError(f"a {kind.__name__} cannot be written to a file")
    return name


def _class(name: str) -> Any:
    """The class at an address; of older addresses, the package and the last name count."""
    *above, own = name.split(".")
    homes = [module for module, names in CLASSES.items() if own in names]
    if len(homes) > 1:
        homes = [module for module in homes if module.split(".")[1] == name.split(".")[1]]
    if not homes or above[:1] != ["specsim"]:
        raise TypeError(f"a {name} cannot be in a file of results")
    return getattr(importlib.import_module(homes[0]), own)
