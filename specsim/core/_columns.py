"""Columns of numbers in CSV files."""

import csv
import io
from collections.abc import Sequence

from specsim.core._files import PathLike, read_text


def read_columns(path: PathLike, names: Sequence[str]) -> dict[str, list[float]]:
    """The columns `names` of a CSV file whose first line names its columns, in any order.

    Raises ValueError, with the line, for a column or cell that is missing, repeated, or not a number."""
    rows = csv.DictReader(io.StringIO(read_text(path).removeprefix("\ufeff")))
    try:
        header, cells = rows.fieldnames or [], [(rows.line_num, row) for row in rows]
    except csv.Error as error:
        raise ValueError(f"{path}:{rows.line_num + 1}: not CSV ({error}); save it again") from None
    for name in names:
        if name not in header:
            raise ValueError(f"{path}: no column {name!r} in its first line; expected {', '.join(names)}")
        if header.count(name) > 1:
            raise ValueError(f"{path}: {header.count(name)} columns {name!r} in its first line; keep one")
    found: dict[str, list[float]] = {name: [] for name in names}
    for line, row in cells:
        for name in names:
            if not row[name]:
                raise ValueError(f"{path}:{line}: no {name}; fill the gap, or leave out the line")
            try:
                if not row[name].isascii() or "_" in row[name]:  # which Python reads too
                    raise ValueError
                found[name].append(float(row[name]))
            except ValueError:
                raise ValueError(f"{path}:{line}: {name} {row[name]!r} is not a number; correct it") from None
    return found
