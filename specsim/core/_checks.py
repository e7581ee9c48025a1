"""Checks of arguments that several rooms share."""

from __future__ import annotations

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
