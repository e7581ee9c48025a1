"""Pieces of the pages in docs/results."""

import re
import textwrap
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from experiments import Row


def filled(text: str) -> str:
    """A paragraph in lines."""
    return textwrap.fill(text, 118, break_long_words=False, break_on_hyphens=False)


def joined(parts: Iterable[str]) -> str:
    """A page of paragraphs, tables and so on."""
    return "\n\n".join(parts) + "\n"


def written(name: str, values: Mapping[str, object]) -> str:
    """The page in pages/NAME.md with its fields filled in and its paragraphs in lines.

    A field alone is put in unchanged, and left out with its paragraph where it is empty."""
    text = Path(__file__).with_name("pages").joinpath(f"{name}.md").read_text(encoding="utf-8")
    parts = []
    for block in text.strip().split("\n\n"):
        made = block.format_map(values).strip("\n")
        parts.append(made if re.fullmatch(r"#.*|\{\w+\}", block) else filled(made))
    return joined(filter(None, parts))


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: int = 0) -> str:
    """A Markdown table; its last `numbers` columns are aligned to the right."""
    rules = ["---"] * (len(head) - numbers) + ["---:"] * numbers
    cells = ((f"| {cell} " if cell else "| " for cell in row) for row in (head, rules, *rows))
    return "\n".join(f"{''.join(row)}|" for row in cells)


def shown(number: float | None) -> str:
    """Three digits; powers of ten where there are many."""
    if number is None:
        return "–"
    if number == 0:
        return "0"
    return f"{number:,.0f}" if 100 <= number < 1e7 else f"{number:.3g}"


class Known(NamedTuple):
    """A finding that was looked at: a heading, where it comes from and where it was reported, and a program
    that shows it where the command alone does not."""

    heading: str
    text: str
    program: str = ""


def known_findings(module: str) -> dict[str, Known]:
    """The findings in the TOML file beside a module."""
    read = tomllib.loads(Path(module).with_suffix(".toml").read_text(encoding="utf-8"))
    return {name: Known(**found) for name, found in read.items()}


def audited_on(rows: Iterable[Row]) -> str:
    """The beginning of a sentence: on which dates the audits of the rows ran."""
    dates = sorted({row["date"] for row in rows})
    return f"The audits ran {'from ' + dates[0] + ' to ' + dates[-1] if dates[1:] else 'on ' + dates[0]}"


def explained(known: Known, package: str, where: str, reported: str) -> Iterator[str]:
    """The section of a finding: what it is, what the audit of a `package` reported, and the program."""
    yield f"### {known.heading}"
    yield filled(known.text)
    yield f"{where}:\n\n```text\n{reported}\n```"
    if known.program:
        yield f"<!-- not run: needs {package} -->\n```python\n{known.program}```"
