"""Tables 1 to 5 of Leviathan, Kalman & Matias, arXiv 2211.17192, cell by cell beside what can be recomputed.

Table 1 (operations and speed at c = ĉ = 0) follows from α and γ; the speeds that Table 4 expects from the α
and c printed beside them, by Thm 3.8; measured speeds and acceptances take the models, and the theorem
bounds them. Table 5's speed-ups at T5-small exceed the largest that Thm 3.8 gives for any γ: see
`leviathan_lenience`. The numbers are those of `experiments.literature.published.recomputed`, which also says
what the verdicts mean.
"""

from __future__ import annotations

from experiments import Row
from experiments.literature.published.recomputed import published
from experiments.literature.published.values import LEVIATHAN
from specsim.core._progress import Progress

TITLE = "Tables 1 to 5 of Leviathan et al., published and recomputed values"


def run(*, fast: bool, rng: int, progress: Progress | None) -> list[Row]:
    """A row for each published value."""
    return [row.to_dict() for row in published() if row.paper == LEVIATHAN]
