"""The kill matrix as a table: rows, columns, cells; as JSON and as Markdown."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from importlib.resources import files
from typing import Any

from specsim.core._provenance import Provenance

__all__ = ["UNSEEN", "Cell", "Column", "KillMatrix", "Row", "shipped", "show_cell"]

#: Why a criterion has no cell for a decoder.
UNSEEN = "not seen: drafts are drawn by the test"


@dataclass(frozen=True)
class Row:
    """A verifier or decoder. `exact` says that it must pass; `tv` is the largest exact deviation, None if not known."""

    name: str
    family: str
    mechanism: str
    threads: tuple[str, ...]
    exact: bool
    decoder: bool
    tv: float | None


@dataclass(frozen=True)
class Column:
    """A criterion, without its function."""

    name: str
    source: str
    about: str


@dataclass(frozen=True)
class Cell:
    """`passed` of `runs` runs of one criterion on one verifier; a criterion that cannot see a row has no cell there."""

    row: str
    column: str
    passed: int
    runs: int

    @property
    def fraction(self) -> float:
        return self.passed / self.runs


@dataclass(frozen=True)
class KillMatrix:
    """Verifiers down, criteria across, specsim's audit (at `level`) last; the cells are tidy, one for each pair run."""

    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    cells: tuple[Cell, ...]
    level: str
    provenance: Provenance

    def __iter__(self) -> Iterator[Cell]:
        return iter(self.cells)

    def cell(self, row: str, column: str) -> Cell | None:
        """The cell of a verifier and a criterion, None where the criterion cannot see it."""
        return next((cell for cell in self.cells if (cell.row, cell.column) == (row, column)), None)

    def missed(self, column: str) -> list[str]:
        """The wrong verifiers and decoders that a criterion let pass more often than not, or cannot see."""
        cells = {row.name: self.cell(row.name, column) for row in self.rows if not row.exact}
        return [name for name, cell in cells.items() if cell is None or cell.fraction > 0.5]

    def with_rows_of(self, other: KillMatrix) -> KillMatrix:
        """This matrix, with those of its rows that `other` has taken from there."""
        rows = {row.name: row for row in other.rows}
        cells = {(cell.row, cell.column): cell for cell in other.cells}
        return replace(
            self,
            rows=tuple(rows.get(row.name, row) for row in self.rows),
            cells=tuple(cells.get((cell.row, cell.column), cell) for cell in self.cells),
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain Python values, for JSON."""
        return {
            "level": self.level,
            "rows": [{**asdict(row), "threads": list(row.threads)} for row in self.rows],
            "columns": [asdict(column) for column in self.columns],
            "cells": [asdict(cell) for cell in self.cells],
            "provenance": self.provenance.to_dict(),
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> KillMatrix:
        """The matrix that `to_dict` wrote."""
        return cls(
            rows=tuple(Row(**{**row, "threads": tuple(row["threads"])}) for row in stored["rows"]),
            columns=tuple(Column(**column) for column in stored["columns"]),
            cells=tuple(Cell(**cell) for cell in stored["cells"]),
            level=stored["level"],
            provenance=Provenance(**stored["provenance"]),
        )

    def markdown(self) -> str:
        """The matrix as a table of fractions of runs that pass, and below it what each criterion draws and asserts."""
        names = [column.name for column in self.columns]
        lines = [f"| | TV | {' | '.join(names)} |", "|---|---|" + "---|" * len(names)]
        for family, rows in self.by_family():
            lines.append(f"| **{family}** |{' |' * (len(names) + 1)}")
            for row in rows:
                shown = [show_cell(self.cell(row.name, name)) for name in names]
                lines.append(f"| `{row.name}` | {show_tv(row.tv)} | {' | '.join(shown)} |")
        wrong = sum(not row.exact for row in self.rows)
        passed = " | ".join(f"{len(self.missed(name))} of {wrong}" for name in names)
        lines += [f"| **wrong, and not caught** | | {passed} |", ""]
        lines += [f"- *{column.name}*: {column.about} ({column.source})." for column in self.columns]
        if any(row.decoder for row in self.rows):
            lines.append(f"- –: {UNSEEN}.")
        return "\n".join(lines) + "\n"

    def by_family(self) -> list[tuple[str, list[Row]]]:
        """The rows by family, in the order in which families first occur."""
        families: dict[str, list[Row]] = {}
        for row in self.rows:
            families.setdefault(row.family, []).append(row)
        return list(families.items())


def shipped() -> KillMatrix:
    """The matrix that comes with the package: the whole catalogue of mutants, as docs/kill_matrix.py computed it."""
    stored = files("specsim").joinpath("data/kill_matrix.json").read_text(encoding="utf-8")
    return KillMatrix.from_dict(json.loads(stored))


def show_cell(cell: Cell | None) -> str:
    """The fraction of runs that pass, as it is printed: 0, 1, or two decimals; – where there was none."""
    return (
        "–"
        if cell is None
        else f"{cell.fraction:.2f}"
        if 0 < cell.passed < cell.runs
        else f"{cell.fraction:.0f}"
    )


def show_tv(tv: float | None) -> str:
    """Total variation as it is printed: three decimals, or the power of ten of a smaller one; – if not known."""
    if tv is None:
        return "–"
    return "0" if tv == 0 else f"{tv:.3f}" if tv >= 5e-4 else f"{tv:.0e}"
