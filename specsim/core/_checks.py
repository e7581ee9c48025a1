"""Checks of arguments that several packages share."""

import math
from typing import Any


def check_count(name: str, value: Any, least: int = 1) -> int:
    """`value` as an int. Raises TypeError unless it is an integer and no bool, ValueError below `least`."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name}: expected an int, got {type(value).__name__}")
    if value < least:
        raise ValueError(f"{name}: {value} is not at least {least}")
    return int(value)


def check_counts(**values: Any) -> None:
    """`check_count` for several arguments, each at least 1."""
    for name, value in values.items():
        check_count(name, value)


def check_between(name: str, value: float, low: float, high: float, what: str) -> None:
    """Raise ValueError unless `low` ≤ value ≤ `high` (below it, where that is infinite)."""
    if not (low <= value <= high and math.isfinite(value)):
        allowed = f"[{low:g}, {high:g}]" if math.isfinite(high) else f"[{low:g}, ∞)"
        raise ValueError(f"{name}: {value} is outside {allowed}; give a {what}")
