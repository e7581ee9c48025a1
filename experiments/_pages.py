"""Pieces of the pages in docs/results."""

from __future__ import annotations

import textwrap
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

__all__ = ["Known", "explained", "filled", "joined", "known_findings", "markdown_table"]


def filled(text: str) -> str:
    """A paragraph in lines."""
    return textwrap.fill(text, 118, break_long_words=False, break_on_hyphens=False)


def joined(parts: Iterable[str]) -> str:
    """A page of paragraphs, tables and so on."""
    return "\n\n".join(parts) + "\n"


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: int = 0) -> str:
    """A Markdown table, whose last columns, so many, are numbers."""
    rules = ["---"] * (len(head) - numbers) + ["---:"] * numbers
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, rules, *rows))


class Known(NamedTuple):
    """A finding that was looked at: a heading, where it comes from and where it was reported, and a program
    that shows it where the command alone does not.
    """

    heading: str
    text: str
    program: str = ""


def known_findings(module: str) -> dict[str, Known]:
    """The findings in the TOML file beside a module."""
    read = tomllib.loads(Path(module).with_suffix(".toml").read_text(encoding="utf-8"))
    return {name: Known(**found) for name, found in read.items()}


def explained(known: Known, package: str, where: str, reported: str) -> Iterator[str]:
    """The section of a finding: what it is, what the audit of a `package` reported, and the program."""
    yield f"### {known.heading}"
    yield filled(known.text)
    yield f"{where}:\n\n```text\n{reported}\n```"
    if known.program:
        yield f"<!-- not run: needs {package} -->\n```python\n{known.program}```"
