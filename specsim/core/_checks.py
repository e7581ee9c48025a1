"""Checks of arguments that several packages share."""

import math
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from numbers import Real
from operator import index
from typing import Any

import numpy as np

from specsim.core._numbers import whole

#: Steps, positions and tokens are numbered in 64 bits.
MOST = 2**63 - 1


@contextmanager
def said_of(what: object) -> Iterator[None]:
    """Within this, what is wrong with a value is said of `what`."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from None


def check_count(name: str, value: Any, least: int = 1, most: int = MOST) -> int:
    """`value` as an int. Raises TypeError unless it is an integer (not a bool), ValueError out of bounds."""
    try:
        if isinstance(value, bool):
            raise TypeError
        found = index(value)
    except Exception:  # an object may raise anything
        raise TypeError(f"{name}: expected an int, got {type(value).__name__}") from None
    if not least <= found <= most:
        largest = "2^63 - 1" if most == MOST else f"{most:,}"
        bound = f"at least {least}" if found < least else f"at most {largest}"
        raise ValueError(f"{name}: {shown_number(found)} is not {bound}")
    return found


def count_of(name: str, value: int | str) -> int:
    """`check_count`, of a text such as "10M" too."""
    if isinstance(value, str):
        try:
            value = whole(value)
        except ValueError as error:
            raise ValueError(f"{name}: {error}; write 1000000, 1e6 or 1M") from None
    return check_count(name, value)


def shown_number(value: Any) -> Any:
    """`value` as messages have it: Python does not print numbers of thousands of digits."""
    return "a number of very many digits" if isinstance(value, int) and abs(value) >= 2**128 else value


def check_counts(**values: Any) -> None:
    """`check_count` for several arguments, each at least 1."""
    for name, value in values.items():
        check_count(name, value)


def check_choice(name: str, value: Any, choices: Collection[str]) -> None:
    """Raise ValueError unless `value` is one of `choices`."""
    if value not in choices:
        raise ValueError(f"{name}: {value!r} is unknown; give one of {', '.join(choices)}")


def check_between(name: str, value: Any, low: float, high: float, what: str, ends: str = "[]") -> None:
    """Raise ValueError unless `value` is finite and in the interval with these `ends`, such as "(]"."""
    if isinstance(value, np.ndarray | np.generic) and not value.ndim:  # float16 would overflow
        value = value.item()
    if isinstance(value, bool) or not issubclass(type(value), Real):
        raise TypeError(f"{name}: expected a number, got {type(value).__name__}; give a {what}")
    excluded = (ends[0] == "(" and value == low) or (ends[1] == ")" and value == high)
    if excluded or not (low <= value <= high and math.isfinite(value)):
        last = f"{high:g}{ends[1]}" if math.isfinite(high) else "∞)"
        allowed = f"{ends[0]}{low:g}, {last}"
        raise ValueError(f"{name}: {shown_number(value)} is outside {allowed}; give a {what}")


def check_unmasked(name: str, value: Any) -> None:
    """Raise ValueError for masked entries of an array, or of arrays in a list, which NumPy would use."""
    for array in value if isinstance(value, list | tuple) else (value,):
        if type(array) is np.ndarray or not isinstance(array, np.ndarray):
            continue
        if masked := int(np.sum(getattr(array, "mask", False))):
            raise ValueError(f"{name}: {masked:,} of {array.size:,} entries are masked; give a plain array")


#: The most seconds of a time limit, three years: clocks and sockets take no arbitrary number.
MOST_SECONDS = 1e8


def check_seconds(name: str, value: Any) -> None:
    """Raise ValueError or TypeError unless `value` is a time limit above 0 of at most `MOST_SECONDS`."""
    check_between(name, value, 0.0, MOST_SECONDS, "number of seconds", "(]")
