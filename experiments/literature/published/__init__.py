"""Published values of papers on verification, beside what can be recomputed of them without the models.

The values are in `experiments.literature.published.values`, and
`experiments.literature.published.recomputed` has what is computed
from them and what the verdicts mean. Values that cannot be computed are bounded in
`experiments.literature.published.bounds`, by the intervals of `experiments.literature.published.consistency`.
"""

from collections.abc import Sequence

from experiments import Progress, Row
from experiments._pages import markdown_table, written
from experiments.literature.published.recomputed import published

TITLE = "Published values of papers on verification, recomputed"


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
    return written("published", {"table": markdown_table(head, lines)})
