"""Names with parameters, NAME:PARAMETER=VALUE,…: of rules, mistakes, methods, policies, engines, pairs."""

import math
import re
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from specsim.core._numbers import real
from specsim.core._types import said_of, suggestion


@dataclass(frozen=True)
class Parameter:
    """A numerical parameter: default, range [low, high], or (low, high] if `above_low`, integers if `whole`.

    `meaning` is one line for tables."""

    name: str
    default: float
    low: float
    high: float
    meaning: str
    above_low: bool = False
    whole: bool = False

    @property
    def range(self) -> str:
        first, last = "(" if self.above_low else "[", "]" if self.high < math.inf else ")"
        return f"{first}{self.low:g}, {self.high:g}{last}"

    @property
    def described(self) -> str:
        """Name, range, default and meaning in one line."""
        return f"{self.name} in {self.range}, {self.default:g}: {self.meaning}"

    def check(self, owner: str, value: Any) -> float:
        """`value` as a float. Raises ValueError naming owner, parameter and range."""
        try:
            number = float(value)
        except (TypeError, ValueError):
            raise ValueError(f"{owner}: parameter {self.name} = {value!r} is not a number") from None
        inside = self.low < number if self.above_low else self.low <= number
        if not (inside and number <= self.high and math.isfinite(number)):
            raise ValueError(f"{owner}: parameter {self.name} = {value} is outside {self.range}")
        if self.whole and number != int(number):
            raise ValueError(f"{owner}: parameter {self.name} = {value} is not a whole number")
        return number


class Parametrised:
    """Gives a frozen dataclass with `name`, `parameters` and `values` its written form and its checks."""

    name: str
    parameters: tuple[Parameter, ...]
    values: Mapping[str, float]

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", check_parameters(self.name, self.parameters, self.values))

    def __str__(self) -> str:
        """The name with the values of its parameters, which `given` reads back."""
        return written(self.name, self.values)

    def with_parameters(self, **values: float) -> Self:
        """The same with other values of parameters. Raises ValueError for one unknown or out of range."""
        return replace(self, values={**self.values, **values})  # type: ignore[type-var]

    def given(self, text: str | None) -> Self:
        """The same with the values in a text such as "gamma=3,size=0.1". Raises as `with_parameters`."""
        if text is None:
            return self
        readers = {parameter.name: real for parameter in self.parameters}
        return self.with_parameters(**read_options(self.name, text, readers))


def check_parameters(
    owner: str, parameters: Sequence[Parameter], values: Mapping[str, float]
) -> dict[str, float]:
    """A number for each of the `parameters` of `owner`: the one in `values`, or its default."""
    known = {parameter.name: parameter for parameter in parameters}
    for name in values:
        if name not in known:
            raise _unknown(owner, name, known)
    return {name: one.check(owner, values.get(name, one.default)) for name, one in known.items()}


def split_name(text: str, known: Container[str]) -> tuple[str, str | None]:
    """The name in NAME:PARAMETER=VALUE,… and what follows its colon; names may have a colon themselves.

    >>> split_name("lenience:lenience=0.5", ["lenience"]), split_name("hf:generate", ["hf", "hf:generate"])
    (('lenience', 'lenience=0.5'), ('hf:generate', None))
    """
    if text in known:
        return text, None
    if found := re.match(r"(.+?):(?=\w+=)(.*)", text, re.DOTALL):
        return found[1], found[2]
    name, colon, given = text.rpartition(":")
    return (name, given) if colon and name in known else (text, None)


def read_options(owner: str, text: str, readers: Mapping[str, Callable[[str], Any]]) -> dict[str, Any]:
    """The values in a text such as "lenience=0.5,…", each read by the reader of its name.

    The value of an option that is a text may have commas, up to the name of the next option.

    Raises ValueError naming `owner`, for an option that is unknown, given twice or unreadable.

    >>> read_options("specsim", "rule=typical:epsilon=0.1,delta=0.3,mistake=x", {"rule": str, "mistake": str})
    {'rule': 'typical:epsilon=0.1,delta=0.3', 'mistake': 'x'}
    """
    values: dict[str, Any] = {}
    for part in _parts(text, readers):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise ValueError(
                f"{owner}: {part!r} is not a parameter; write {owner}:PARAMETER=VALUE, separated by commas"
            )
        if name not in readers:
            raise _unknown(owner, name, readers)
        if name in values:
            raise ValueError(f"{owner}: parameter {name} is given twice; give it once")
        with said_of(f"{owner}: {name}"):
            values[name] = readers[name](value)
    return values


def _parts(text: str, readers: Mapping[str, Callable[[str], Any]]) -> list[str]:
    parts: list[str] = []
    for part in text.split(","):
        name = part.partition("=")[0].strip()
        if parts and name not in readers and readers.get(parts[-1].partition("=")[0].strip()) is str:
            parts[-1] += f",{part}"
        else:
            parts.append(part)
    return parts


def written(name: str, values: Mapping[str, float]) -> str:
    """The name and, after a colon, its numbers in the shortest notation that reads back as the same."""
    given = ",".join(
        f"{parameter}={value:g}" if float(f"{value:g}") == value else f"{parameter}={value!r}"
        for parameter, value in values.items()
    )
    return f"{name}:{given}" if given else name


def _unknown(owner: str, name: str, known: Mapping[str, Any]) -> ValueError:
    has = f"it has {', '.join(known)}" if known else "it has none"
    meant = suggestion(name, known).removesuffix(".")
    return ValueError(f"{owner}: no parameter {name!r}; {has}{meant}")
