"""Columns of numbers in CSV files."""

import csv
import io
from collections.abc import Sequence

from specsim.core._files import PathLike, read_text


def read_columns(path: PathLike, names: Sequence[str]) -> dict[str, list[float]]:
    """The columns `names` of a CSV file whose first line names its columns, in any order.

    Raises ValueError, with the line, for a column or a cell that is missing, for two columns of one name, and
    for what is no number."""
    rows = csv.DictReader(io.StringIO(read_text(path).removeprefix("\ufeff")))
    try:
        header, cells = rows.fieldnames or [], [(rows.line_num, row) for row in rows]
    except csv.Error as error:
        raise ValueError(f"{path}:{rows.line_num + 1}: not CSV that can be read ({error})") from None
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
                found[name].append(_number(row[name]))
            except ValueError:
                raise ValueError(f"{path}:{line}: {name} {row[name]!r} is not a number") from None
    return found


def _number(text: str) -> float:
    """Of ASCII digits alone: Python reads 0.5_0 and the digits of other scripts too."""
    if not text.isascii() or "_" in text:
        raise ValueError
    return float(text)
