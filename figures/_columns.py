"""Rows of a table that belong together, as columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

Columns = dict[str, list[Any]]


def groups(table: pa.Table, by: str) -> dict[Any, Columns]:
    """The columns of `table` for each value of column `by`, in the order of their first rows."""
    found: dict[Any, list[int]] = {}
    for number, value in enumerate(table[by].to_pylist()):
        found.setdefault(value, []).append(number)
    return {value: table.take(numbers).to_pydict() for value, numbers in found.items()}


def where(table: pa.Table, **values: Any) -> pa.Table:
    """The rows of `table` that have these values in these columns."""
    columns = [table[name].to_pylist() for name in values]
    wanted = tuple(values.values())
    return table.take([number for number, row in enumerate(zip(*columns, strict=True)) if row == wanted])
