"""Calls that are refused, a line each in the files refused_calls.txt: the call, and what its error says."""

from functools import cache
from pathlib import Path

import pytest
from refused import refuses


@cache
def lines_of(file):
    return file.read_text(encoding="utf-8").splitlines()


@cache
def names_of(file):
    """What the lines without an arrow import and define, for the calls of their file."""
    names = {}
    exec("\n".join(line for line in lines_of(file) if " => " not in line), names)
    return names


CALLS = [
    pytest.param(file, *line.split(" => "), id=f"{file.parent.name}-{number}")
    for file in sorted(Path(__file__).parent.rglob("refused_calls.txt"))
    for number, line in enumerate(lines_of(file), 1)
    if " => " in line
]


@pytest.mark.parametrize(("file", "call", "said"), CALLS)
def test_a_call_is_refused(file, call, said):
    """With a ValueError where the line names no other error."""
    error = TypeError if said.startswith("TypeError: ") else ValueError
    refuses(said.removeprefix("TypeError: "), eval, call, names_of(file), error=error)
