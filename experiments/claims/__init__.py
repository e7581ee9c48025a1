"""Claims of five documents on speculative decoding, each checked by a program.

The documents are a problem page, the documentation of a package, notes, an article and a long guide; what each says that
can be checked is in a module of its own. `run` gives a row for every claim, `as_markdown` the page made of them. What is
found is computed; the numbers that a document prints are arguments of its checks.

Verdicts: "holds"; "holds within rounding", a printed number is the rounded one, or a law is right to 1e-9; "true only if
…", with the condition in what was found; "false"; "not checkable here", with what it would take.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from experiments.claims import exact_speedups, guide, naive_speculate, notes, problem
from experiments.claims.anatomy import VERDICTS, Claim, Outcome, Setting
from specsim.core._streams import RandomSource, root_of

__all__ = ["CLAIMS", "TITLE", "VERDICTS", "Claim", "Outcome", "Setting", "as_markdown", "run"]

TITLE = "What five documents say of speculative decoding, checked"

CLAIMS: tuple[Claim, ...] = (
    *problem.CLAIMS,
    *naive_speculate.CLAIMS,
    *notes.CLAIMS,
    *exact_speedups.CLAIMS,
    *guide.CLAIMS,
)

#: Contexts of the n-gram pair that measurements average over.
CONTEXTS, FAST_CONTEXTS = 4096, 512


def run(
    *, fast: bool = False, rng: RandomSource = 0, progress: Callable[[int, int], None] | None = None
) -> list[dict[str, Any]]:
    """Check every claim: a row each, with id, source, where, quote, asks, verdict and found.

    `fast` averages measurements over fewer contexts; all else is exact. The same `rng` gives the same rows.
    `progress(done, total)` is called after each claim.
    """
    setting = Setting(FAST_CONTEXTS if fast else CONTEXTS, root_of(rng))
    rows = []
    for done, claim in enumerate(CLAIMS, 1):
        verdict, found = claim.outcome(setting)
        rows.append(
            {
                "id": claim.id,
                "source": claim.source,
                "where": claim.where,
                "quote": claim.quote,
                "asks": claim.asks,
                "verdict": verdict,
                "found": found,
            }
        )
        if progress is not None:
            progress(done, len(CLAIMS))
    return rows


def as_markdown(rows: Sequence[dict[str, Any]]) -> str:
    """The rows as Markdown: how many of each verdict by document, then a table for each document."""
    sources = list(dict.fromkeys(row["source"] for row in rows))
    lines = [_line("document", *VERDICTS), _line("---", *["---:"] * len(VERDICTS))]
    for source in sources:
        counts = Counter(row["verdict"] for row in rows if row["source"] == source)
        lines.append(_line(source, *(str(counts[verdict]) for verdict in VERDICTS)))
    counts = Counter(row["verdict"] for row in rows)
    lines.append(_line("all", *(str(counts[verdict]) for verdict in VERDICTS)))
    for source in sources:
        lines += ["", f"## {source[:1].upper()}{source[1:]}", ""]
        lines += [
            _line("where", "as printed, shortened", "what is asked", "verdict", "found"),
            _line(*["---"] * 5),
        ]
        lines += [
            _line(row["where"], row["quote"], row["asks"], f"**{row['verdict']}**", row["found"])
            for row in rows
            if row["source"] == source
        ]
    return "\n".join(lines) + "\n"


def _line(*cells: str) -> str:
    """A row of a Markdown table; what Markdown would read as markup stands as it is."""
    for mark in "\\|*_<>[]~":
        cells = tuple(
            cell.replace(mark, "\\" + mark) if not cell.startswith("**") else cell for cell in cells
        )
    return "| " + " | ".join(cells) + " |"
