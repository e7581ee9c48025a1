"""The tables of docs/performance.md, for each kind of processor."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Any

PAGE = Path("docs/performance.md")


def write_page(bench: dict[str, Any]) -> None:
    """Replace what was measured with vectors as wide as those of this processor."""
    vectors, text = bench["machine"]["vectors"], PAGE.read_text(encoding="utf-8")
    begin, end = f"<!-- {vectors} -->\n", f"<!-- /{vectors} -->\n"
    before, after = text.partition(begin)[0], text.partition(end)[2]
    PAGE.write_text(f"{before}{begin}{measured(bench)}{end}{after}", encoding="utf-8")


def measured(bench: dict[str, Any]) -> str:
    """The machine, and a table for each part of the benchmarks."""
    machine, versions = bench["machine"], [f"{name} {number}" for name, number in bench["versions"].items()]
    where = f"on {machine['cores']} cores of {machine['processor']}"
    lines = [f"## With {machine['vectors']}", ""]
    lines += [f"Measured on {bench['date']}, {where}, with {', '.join(versions)}.", ""]
    for part, rows in groupby(bench["ratios"], key=lambda row: row["part"]):
        lines += [f"### {part.replace('_', ' ').capitalize()}", ""]
        lines += ["| ratio | median | range | wanted | |", "| --- | ---: | --- | --- | --- |"]
        lines += [_row(row) for row in rows]
        lines.append("")
    return "\n".join(lines) + "\n"


def _row(row: dict[str, Any]) -> str:
    spread = "" if row["low"] == row["high"] else f"{row['low']:.2f} – {row['high']:.2f}"
    return f"| {row['name']} | {row['median']:.2f} | {spread} | {row['wanted']} | {row['detail']} |"
