"""What a claim and a document are, and how a check reaches its verdict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import numpy as np

__all__ = [
    "CONDITIONAL",
    "RIGHT",
    "UNCHECKED",
    "VERDICTS",
    "WRONG",
    "Claim",
    "Document",
    "Finding",
    "decide",
    "only_if",
]

RIGHT, CONDITIONAL, WRONG, UNCHECKED = "right", "right with a condition", "wrong", "not checkable"
VERDICTS = (RIGHT, CONDITIONAL, WRONG, UNCHECKED)


class Finding(NamedTuple):
    """The verdict of a check, and a sentence with the numbers that it computed."""

    verdict: str
    found: str


Check = TypeVar("Check", bound=Callable[..., Finding])


@dataclass(frozen=True)
class Claim:
    """A statement of a document, and the check that computes its verdict.

    `quote` is the statement as printed, shortened; `where` is the section; `correct` is the correct
    statement, which begins with "Only" if the claim needs a condition. The numbers that a document prints are
    default arguments of `check`, so that a test can run it with others.
    """

    id: str
    document: str
    where: str
    quote: str
    correct: str
    check: Callable[[], Finding]

    def row(self) -> dict[str, Any]:
        """Run the check; return one row of the table."""
        verdict, found = self.check()
        return {
            "id": self.id,
            "document": self.document,
            "where": self.where,
            "quote": self.quote,
            "verdict": verdict,
            "correct": self.correct,
            "found": found,
        }


@dataclass
class Document:
    """A document and its claims.

    `source` names author, date and address, or says which of them the document does not give. A complete
    reading listed `listed` claims; the next three fields count those that are left out, by reason: they
    concern `another_subject`, they are `repeated` (the same finding as a claim that is kept, a step towards
    it or a special case), or they are `unmeasured`, because they need models and hardware.
    """

    title: str
    source: str
    listed: int
    another_subject: int
    repeated: int
    unmeasured: int
    claims: list[Claim] = field(default_factory=list)

    def claim(self, name: str, *, where: str, quote: str, correct: str) -> Callable[[Check], Check]:
        """Decorate the check of a claim: adds the claim to the document and returns the check."""

        def add(check: Check) -> Check:
            self.claims.append(Claim(name, self.title, where, quote, correct, check))
            return check

        return add

    def not_checkable(self, name: str, *, where: str, quote: str, needs: str) -> None:
        """Add a claim that would need models or hardware that are not available."""
        finding = Finding(UNCHECKED, f"A check needs {needs}.")
        self.claims.append(Claim(name, self.title, where, quote, "", lambda: finding))


def decide(holds: bool | np.bool_, found: str) -> Finding:
    """The finding for a claim that holds or does not."""
    return Finding(RIGHT if holds else WRONG, found)


def only_if(there: bool | np.bool_, elsewhere: bool | np.bool_, found: str) -> Finding:
    """The finding for a claim that holds under a condition (`there`), and without it (`elsewhere`) or not."""
    if there and elsewhere:
        return Finding(RIGHT, found)
    return Finding(CONDITIONAL if there else WRONG, found)
