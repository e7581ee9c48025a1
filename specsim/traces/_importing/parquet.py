"""Parquet tables with list columns, one row for each step, or, without `draft_tokens`, for each position of a
text; docs/importing-logs.md has the columns."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from specsim.core._tables import installing
from specsim.core._tensors import check_unique
from specsim.traces._steps import Logged, Source, Step, as_computed, check_id

SUFFIXES = (".parquet",)

#: Rows of a table that are read at a time.
ROWS = 64
NAMES = ("draft_tokens", "token", "p", "q", "p_tokens", "q_tokens", "accepted", "context")


def read(source: Source) -> Logged:
    """The steps of the table's rows. Raises ValueError for another file, or one that lacks a column."""
    try:
        from pyarrow import parquet
    except ModuleNotFoundError:
        raise ValueError(f"{source.path}: needs pyarrow; {installing('arrow')}") from None
    with _named(source.path):
        table = parquet.ParquetFile(source.path)
    check_unique(f"{source.path}: column", [name for name in table.schema_arrow.names if name in NAMES])
    names = [name for name in NAMES if name in table.schema_arrow.names]
    truncated = {"p_tokens", "q_tokens"} <= set(names)
    if not {"p", "q"} <= set(names) or (not truncated and {"p_tokens", "q_tokens"} & set(names)):
        raise ValueError(
            f"{source.path}: columns {', '.join(table.schema_arrow.names)}; give p and q (of truncated rows "
            "p_tokens and q_tokens too), and draft_tokens for steps, or one row for each place of a text"
        )
    if table.metadata.num_rows == 0:
        raise ValueError(f"{source.path}: has no row; log some steps")
    with _named(source.path):
        first = next(table.iter_batches(1, columns=names)).to_pylist()[0]
    steps, lists = "draft_tokens" in names, set(names) - {"token", "accepted", "context"}
    wrong = [name for name in names if name in lists and not isinstance(first[name], list)]
    if wrong or (steps and not (first["draft_tokens"] and all(isinstance(row, list) for row in first["p"]))):
        what = ", ".join(wrong) or "p"
        raise ValueError(f"{source.path}, row 0: {what} has another depth of lists; see the format's columns")
    gamma = len(first["draft_tokens"]) if steps else 0
    if truncated:
        ids = [name for name in names if name.endswith(("tokens", "token"))]
        top, largest = _extent(table, ids, source.path)
        vocab_size = max(largest + 1, source.vocab_size or 0)
    else:
        top, vocab_size = None, len(first["p"][0] if steps else first["p"])
    flags, bonus = steps and "accepted" in names, not steps or len(first["q"]) > gamma
    facts = {} if steps else {"text": "each row is a place in a text, at which nothing was drafted"}
    found, total = _steps(table, names, truncated, source), table.metadata.num_rows
    return Logged(vocab_size, gamma, top, flags, bonus, total, found, facts)


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """What Arrow says of a damaged file, as a ValueError that names the file."""
    from pyarrow import ArrowException

    try:
        yield
    except (ArrowException, OSError, UnicodeDecodeError, StopIteration) as error:
        first, *_ = str(error).splitlines() or ["it has fewer rows than it states"]
        raise ValueError(f"{path}: cannot be read as Parquet ({first}); write it again") from None


def _batches(table: Any, names: list[str], path: Path) -> Iterator[Any]:
    """The rows of the columns `names`, some at a time."""
    with _named(path):
        yield from table.iter_batches(ROWS, columns=names)


def _steps(table: Any, names: list[str], truncated: bool, source: Source) -> Iterator[Step]:
    steps, number = "draft_tokens" in names, 0
    for batch in _batches(table, names, source.path):
        for row in batch.to_pylist():
            place = f"{source.path}, row {number}"
            missing = [name for name in names if row[name] is None and name != "token"]
            if missing:
                raise ValueError(f"{place}: {', '.join(missing)} is null; log a value in every row")
            if not steps:
                token = row.get("token")
                row["draft_tokens"] = [] if token is None else [token]
                row |= {name: [row[name]] for name in ("p", "q", "p_tokens", "q_tokens") if name in row}
            p, q = (_rows(row, name, truncated, place) for name in "pq")
            context = row.get("context", number if steps else 0)
            yield Step(place, context, row["draft_tokens"], row.get("accepted"), p, q)
            number += 1


def _rows(row: dict[str, Any], name: str, truncated: bool, place: str) -> Any:
    """The rows of p or q in a row of the table: an array, or pairs of tokens and probabilities."""
    if not truncated:
        try:
            return as_computed(np.array(row[name]))
        except ValueError:
            raise ValueError(f"{place}, {name}: rows differ in length; give V numbers each") from None
    if len(row[name]) != len(row[f"{name}_tokens"]):
        raise ValueError(f"{place}: {name} and {name}_tokens differ in length; list one of each")
    return list(zip(row[f"{name}_tokens"], row[name], strict=True))


def _extent(table: Any, names: list[str], path: Path) -> tuple[int, int]:
    """The most tokens that a row lists, and the largest id in the table."""
    import pyarrow.compute as pc
    from pyarrow import types

    top, largest = 1, 0
    for batch in _batches(table, names, path):
        for name in names:
            column, lengths = batch.column(name), None
            while column.type.num_fields:
                lengths, column = pc.list_value_length(column), column.flatten()
            if not (types.is_integer(column.type) or types.is_null(column.type)):
                raise ValueError(f"{path}, {name}: {column.type} values; give integers, token ids")
            if name in ("p_tokens", "q_tokens"):
                top = max(top, pc.max(lengths).as_py() or 0)
            largest = max(largest, check_id(pc.max(column).as_py() or 0, f"{path}, {name}"))
    return top, largest
