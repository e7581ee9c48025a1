"""The oracle, which knows what will be accepted and bounds every policy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specsim.core._types import Ints
from specsim.planning.costs import StepCost
from specsim.planning.policies._log import DraftLog
from specsim.planning.policies._policy import Drafted, Policy


@dataclass
class Oracle(Policy):
    """The lengths with the least total time on `log`, by dynamic programming.

    It never drafts a token that will be rejected: with `runs` r_t of tokens that would be accepted from t on,
    the least time V from t to the end is min over g ≤ r_t of step(g) + V(t + g + 1). It bounds every policy
    that has at most `most` tokens accepted in one step. Raises ValueError if it is simulated on another log.
    """

    log: DraftLog
    most: int = 64

    planned = True

    counts = ("most",)

    def __str__(self) -> str:
        return "oracle"

    def reset(self, cost: StepCost) -> None:
        self._plan: list[int] = _best_lengths(self.log, cost, self.most).tolist()

    def more(self, step: Drafted) -> bool:
        return step.size < self._plan[step.start]


def _best_lengths(log: DraftLog, cost: StepCost, most: int) -> Ints:
    n = len(log)
    # the last token of the text is left to the target, as in every step
    runs = np.minimum(np.minimum(log.runs, np.arange(n)[::-1]), most)
    times = np.array([cost.step(g) for g in range(int(runs.max()) + 1)])
    least = np.zeros(n + 1)
    lengths = np.empty(n, dtype=np.int64)
    for t in range(n - 1, -1, -1):
        r = runs[t]
        totals = times[: r + 1] + least[t + 1 : t + r + 2]
        lengths[t] = g = totals.argmin()
        least[t] = totals[g]
    return lengths
