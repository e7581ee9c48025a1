"""Statements that five documents make about speculative decoding, each checked by a program.

There is one module for each document, with its claims. Checks about a law of tokens enumerate it in exact
fractions, checks about speed use the closed forms of `specsim.theory`, and three checks measure the n-gram
pair of models. Everything is deterministic. Claims about other subjects, and repetitions, are left out;
`Document` counts them. Among the rest, claims that are wrong or need a condition were preferred, so the
verdicts are no error rate of the documents.

The verdicts are "right"; "right with a condition", if the document does not state the condition; "wrong"; and
"not checkable", if the check would need models or hardware that are not available.
"""

from __future__ import annotations

from typing import Any

from experiments.literature.claims.claim import VERDICTS, Claim, Document, Finding
from experiments.literature.claims.ledger import CLAIMS, DOCUMENTS
from experiments.literature.claims.page import page
from specsim.core._progress import Progress

__all__ = ["CLAIMS", "DOCUMENTS", "TITLE", "VERDICTS", "Claim", "Document", "Finding", "page", "run"]

TITLE = "Claims of five documents on speculative decoding, checked"


def run(*, fast: bool = False, rng: int = 0, progress: Progress | None = None) -> list[dict[str, Any]]:
    """A row for each claim: id, document, where, quote, verdict, correct (the correct statement) and found
    (numbers).

    All checks are exact and quick, so `fast` and `rng` change nothing. `progress` is called after each claim.
    """
    rows = []
    for done, claim in enumerate(CLAIMS, 1):
        rows.append(claim.row())
        if progress is not None:
            progress(done, len(CLAIMS))
    return rows
