"""Checks of arguments that several rooms share."""

from __future__ import annotations

import operator
from typing import Any


def check_count(name: str, value: Any, least: int = 1) -> int:
    """`value` as an int. Raises ValueError, naming the argument, unless it is an integer ≥ `least` and no bool."""
    try:
        count = -1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        count = -1
    if count < least:
        raise ValueError(f"{name}: {value!r} is not a whole number ≥ {least}")
    return count
