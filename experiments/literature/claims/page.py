"""The page docs/results/claims.md, made of the rows of `run`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from experiments.literature.claims.claim import UNCHECKED, VERDICTS, WRONG
from experiments.literature.claims.ledger import DOCUMENTS

__all__ = ["page"]

HEAD = """# What five documents say about speculative decoding, checked

Five documents that explain speculative decoding were read, and their claims checked by
`experiments.literature.claims`.
Of the {checked} claims below that can be checked here, {right} are right, {conditional} are right only under
a condition that the document does not state, and {wrong} are wrong. {unchecked} more would need models or
hardware that are not available.

{summary}

## How the claims were selected

A complete reading of the documents lists {listed} claims. {subject} of them concern verification, drafting or
their speed. The other {other} concern another subject (the arithmetic of an example, tokenizers in general,
sizes and training of networks, rejection sampling in general) and are left out. Of the {subject},
{repeated} are left out because they repeat a claim that is kept, or are a step towards it or a special case
of it, and {unmeasured} because they are measurements of models or hardware. The remaining {kept} are below.
The selection prefers claims that are wrong or need a condition, so the counts are no error rates of the
documents.

## The documents

{documents}

## How to read the tables

p is the target model's distribution and q the draft's, except in quotes from the article of Ran Ding, which
swaps the letters. K (or γ) is the number of drafted tokens in a step, α the probability that a drafted token
is accepted once it is tested, r (or c) the time of a draft pass over that of a target pass. TV is the total
variation distance between the law of the emitted tokens and the target's law, as an exact fraction or
rounded; TV = 0 is exact. Each row has the correct statement, and the numbers that the check computed.
"""

#: How verdicts are headed in the tables of counts.
COUNTED = ("right", "with a condition", "wrong", "not checkable")


def page(rows: Sequence[dict[str, Any]]) -> str:
    """The page as Markdown: a summary, the selection, the documents, and a table of claims for each
    document.
    """
    counts = Counter(row["verdict"] for row in rows)
    right, conditional, wrong, unchecked = (counts[verdict] for verdict in VERDICTS)
    listed, other, repeated, unmeasured = (
        sum(getattr(document, name) for document in DOCUMENTS)
        for name in ("listed", "another_subject", "repeated", "unmeasured")
    )
    head = HEAD.format(
        checked=len(rows) - counts[UNCHECKED],
        right=right,
        conditional=conditional,
        wrong=wrong,
        unchecked=unchecked,
        summary=_summary(rows),
        listed=listed,
        subject=listed - other,
        other=other,
        repeated=repeated,
        unmeasured=unmeasured,
        kept=len(rows),
        documents="\n".join(f"- **{_plain(document.title)}**. {document.source}" for document in DOCUMENTS),
    )
    parts = [head]
    for document in DOCUMENTS:
        lines = [
            f"## {_plain(document.title)}",
            "",
            _line("where", "quote", "verdict", "correct statement", "computed"),
            _line(*["---"] * 5),
        ]
        for row in rows:
            if row["document"] == document.title:
                verdict = f"**{row['verdict']}**" if row["verdict"] == WRONG else row["verdict"]
                cells = (_plain(row[name]) for name in ("where", "quote", "correct", "found"))
                where, quote, correct, found = cells
                lines.append(_line(where, quote, verdict, correct or "—", found))
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def _summary(rows: Sequence[dict[str, Any]]) -> str:
    lines = [_line("document", "listed", "kept", *COUNTED), _line("---", *["---:"] * (2 + len(COUNTED)))]
    for title in [*(document.title for document in DOCUMENTS), "all"]:
        verdicts = [row["verdict"] for row in rows if title in (row["document"], "all")]
        listed = sum(document.listed for document in DOCUMENTS if title in (document.title, "all"))
        counts = (listed, len(verdicts), *(verdicts.count(verdict) for verdict in VERDICTS))
        lines.append(_line(_plain(title), *map(str, counts)))
    return "\n".join(lines)


def _plain(text: str) -> str:
    """`text` with all Markdown marks escaped."""
    for mark in "\\|*_<>[]~":
        text = text.replace(mark, "\\" + mark)
    return text


def _line(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"
