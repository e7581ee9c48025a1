"""Published values of papers on verification, beside what can be recomputed of them without the models.

The values are in `experiments.literature.published.values`, and
`experiments.literature.published.recomputed` has what is computed
from them and what the verdicts mean. Values that cannot be computed are bounded in
`experiments.literature.published.bounds`, by the intervals of `experiments.literature.published.consistency`.
"""

from collections.abc import Sequence

from experiments import Progress, Row
from experiments._pages import joined, markdown_table
from experiments.literature.published.recomputed import published

TITLE = "Published values of papers on verification, recomputed"

HEAD = """Values of papers on verification beside what follows from other published values, or from an
example that needs no model (`experiments.literature.published.recomputed`). *reproduced*: the recomputed
value rounds to the published one; *within rounding*: it does for some inputs that round to the published
inputs, or the values satisfy, up to rounding, what any such values must; *not reproducible*: it does for
none.

Values that need the models are bounded by other printed numbers of the same paper where closed forms tie them
(`experiments.literature.published.bounds`): each printed number is the interval of what rounds to it, and
these intervals leave one for each of the others. *within bounds*: the two intervals, which the note has,
meet; *disjoint*: they do not, so that some number, or what the note assumes, does not hold; *inputs
unavailable*: nothing bounds the value."""


def run(*, fast: bool, rng: int, progress: Progress | None) -> list[Row]:
    """A row for each value."""
    return [row.to_dict() for row in published()]


def page(rows: Sequence[Row]) -> str:
    """docs/results/published.md."""
    lines = []
    for row in rows:
        shown = ["–" if row[name] is None else f"{row[name]:.4f}" for name in ("recomputed", "difference")]
        verdict = f"{row['verdict']} ({row['note']})" if row["note"] else row["verdict"]
        cells = [row["paper"], row["where"], row["quantity"], row["published"], *shown, verdict]
        lines.append([cell.replace("|", "\\|") for cell in cells])
    head = ("arXiv", "where", "quantity", "published", "recomputed", "difference", "verdict")
    return joined(["# Published values, recomputed", HEAD, markdown_table(head, lines)])
