"""Two samples, of two verifiers or of two servers, drawn in blocks that grow by a half: do they have one law?

The law need not be known: `stats.log_pooled_two_sample_e` bets on each block with what came before it. So all
tables may be tested after each block, and drawing ends with the first test that rejects."""

from collections.abc import Iterable, Sequence

import numpy as np

from specsim.core._types import Ints
from specsim.core.stats import detectable_tv

#: The counts of both samples in one table, block by block.
Blocks = Sequence[tuple[Ints, Ints]]
#: The least logarithm of an e-value that is shown; some are minus infinity.
LEAST = -99.0


def block_ends(total: int, blocks: int, least: int) -> list[int]:
    """Where at most `blocks` blocks end, the first of them at `least` or later, the last at `total`.

    >>> block_ends(100, 5, 30)
    [30, 44, 66, 100]
    """
    return list(dict.fromkeys(max(least, int(total * 1.5**-k)) for k in range(blocks - 1, -1, -1)))


def totals(blocks: Blocks) -> tuple[Ints, Ints]:
    one, other = (np.sum([block[side] for block in blocks], axis=0) for side in (0, 1))
    return one, other


def rejects(log_e: float, level: float) -> bool:
    return bool(log_e >= -np.log(level))


def shown(log_e: float) -> float:
    """The logarithm to base 10 for a result, which can hold no infinity."""
    return float(max(log_e, LEAST) / np.log(10.0))


def detectable(cells: int, sizes: Iterable[tuple[int, int]], level: float) -> float:
    """The total variation between the laws of two samples of these sizes, in each table, that is found with
    probability .999. Two samples of n count as one of n/2, and a third of them estimate the distribution."""
    effective = sum(2.0 * a * b / (a + b) for a, b in sizes if a + b) / 3.0
    return detectable_tv(cells, effective, level)
