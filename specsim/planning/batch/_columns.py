"""Columns of numbers in CSV files."""

import csv
from collections.abc import Sequence

from specsim.core._files import PathLike, read_text


def read_columns(path: PathLike, names: Sequence[str]) -> dict[str, list[float]]:
    """The columns `names` of a CSV file whose first line names its columns, in any order.

    Raises ValueError, with the line, for a column or a cell that is missing, and for what is no number."""
    rows = csv.DictReader(read_text(path).splitlines())
    for name in names:
        if name not in (rows.fieldnames or ()):
            raise ValueError(f"{path}: no column {name!r} in its first line; expected {', '.join(names)}")
    found: dict[str, list[float]] = {name: [] for name in names}
    for row in rows:
        for name in names:
            if not row[name]:
                raise ValueError(f"{path}:{rows.line_num}: no {name}; fill the gap, or leave out the line")
            try:
                found[name].append(float(row[name]))
            except ValueError:
                raise ValueError(f"{path}:{rows.line_num}: {name} {row[name]!r} is not a number") from None
    return found
