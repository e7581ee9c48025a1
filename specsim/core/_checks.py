"""Checks of arguments that several rooms share."""

from __future__ import annotations

import math
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


def check_between(name: str, value: float, low: float, high: float, what: str) -> None:
    """Raise ValueError unless `low` ≤ value ≤ `high` (below it, where that is infinite)."""
    if not (low <= value <= high and math.isfinite(value)):
        allowed = f"[{low:g}, {high:g}]" if math.isfinite(high) else f"[{low:g}, ∞)"
        raise ValueError(f"{name}: {value} is outside {allowed}; give a {what}")
