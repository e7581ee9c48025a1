"""The tables in which the texts of two servers are compared: the first block of texts says of what."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

from specsim.core._types import Ints
from specsim.planted._engines._texts import Pieces

#: The most outcomes that have a cell of their own, and the least times that each is in the first block.
OUTCOMES, LEAST = 15, 4
#: Whole texts are counted in so many bins.
BINS = 16
#: Characters of an outcome that are shown.
LONGEST = 80

#: What is counted of a text; None if the text does not belong to the table.
Outcome = tuple[Any, ...] | None


class Text(NamedTuple):
    """A text of a server, and why it ended."""

    pieces: Pieces
    finish: str | None


@dataclass(frozen=True)
class Table:
    """Counts of the outcomes `cells`, in this order, and of all others."""

    name: str
    outcome: Callable[[Text], Outcome]
    cells: tuple[Outcome, ...]

    def counts(self, texts: Sequence[Text]) -> Ints:
        place = {cell: i for i, cell in enumerate(self.cells)}
        found = [
            place.get(outcome, len(place)) for one in texts if (outcome := self.outcome(one)) is not None
        ]
        return np.bincount(np.array(found, dtype=np.int64), minlength=len(place) + 1)


def token_at(place: int) -> Callable[[Text], Outcome]:
    """The outcome of a place: its token, or () after the end of a text."""
    return lambda text: text.pieces[place : place + 1]


def _token_after(beginning: Pieces, text: Text) -> Outcome:
    place = len(beginning)
    return text.pieces[place : place + 1] if text.pieces[:place] == beginning else None


def _bin(text: Text) -> Outcome:
    return (crc32(repr(text.pieces).encode()) % BINS,)


def _end(text: Text) -> Outcome:
    return (len(text.pieces), text.finish)


def tables(first: Sequence[Text], length: int) -> list[Table]:
    """The tables of a prompt, given the first block of texts; their number and names depend on `length`."""
    asked: list[tuple[str, Callable[[Text], Outcome]]] = [
        (f"token {place + 1}", token_at(place)) for place in range(length)
    ]
    for place in range(1, length):
        beginnings = Counter(one.pieces[:place] for one in first if len(one.pieces) >= place)
        begun = beginnings.most_common(1)[0][0] if beginnings else (-1,)  # of no text
        asked.append((f"token {place + 1} after the commonest beginning", partial(_token_after, begun)))
    asked += [("whole texts, in bins", _bin), ("number of tokens, and end", _end)]
    return [Table(name, outcome, commonest(outcome, first)) for name, outcome in asked]


def commonest(outcome: Callable[[Text], Outcome], texts: Sequence[Text]) -> tuple[Outcome, ...]:
    """The outcomes that have a cell."""
    found = Counter(one for text in texts if (one := outcome(text)) is not None)
    return tuple(one for one, times in found.most_common(OUTCOMES) if times >= LEAST)


def name_of(table: Table, cell: int) -> str:
    """An outcome in words."""
    if cell == len(table.cells):
        return "all others"
    outcome = table.cells[cell]
    if table.outcome is _bin:
        return "texts of a bin"
    if table.outcome is _end:
        count, finish = outcome or (0, None)
        return f"{count} tokens, end {finish!r}"[:LONGEST]
    return word_of(outcome)


def word_of(outcome: Outcome) -> str:
    """A token in words, without characters that cannot be printed."""
    return repr(outcome[0])[:LONGEST] if outcome else "no token"
