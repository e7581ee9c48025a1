"""Table 1 of Chen et al., arXiv 2302.01318, cell by cell beside what can be recomputed.

Chinchilla 70B with a draft of 4B, K = 4. The speed-ups should be ratios of the published times: 14.1/7.00 =
2.01 and 14.1/5.73 = 2.46 are, 14.1/7.52 = 1.875 is not the published 1.92. Scores and times need the models;
the speed-ups bound the times. The numbers are those of `experiments.literature.published.recomputed`, which
also says what the verdicts mean.
"""

from __future__ import annotations

from experiments import Row
from experiments.literature.published.recomputed import published
from experiments.literature.published.values import CHEN
from specsim.core._progress import Progress

TITLE = "Table 1 of Chen et al., published and recomputed values"


def run(*, fast: bool, rng: int, progress: Progress | None) -> list[Row]:
    """A row for each published value."""
    return [row.to_dict() for row in published() if row.paper == CHEN]
