"""What lossless rules gain without giving anything up: tokens per step on the n-gram pair.

`specsim.simulation.compare` gives rules for a single draft a chain of five tokens, and rules for several
drafts two chains of five, drawn in the first way that each rule names. Steps begin at contexts of held-out
text. These are the points at total variation 0 beside the lines of `lossy_speed`, for the same pair and γ.
"""

from __future__ import annotations

from experiments import Row
from specsim.core._progress import Progress
from specsim.models import default_pair
from specsim.simulation import compare

TITLE = "Lossless rules on the n-gram pair: tokens per step"

RULES = ("standard", "block", "one_hot", "without_replacement", "k_seq")
GAMMA = 5
STEPS, FAST_STEPS = 2**16, 2**9


def run(*, fast: bool, rng: int, progress: Progress | None) -> list[Row]:
    """A row for each rule; `chains` says how many chains of γ tokens it verifies, errors are standard
    errors.
    """
    steps = FAST_STEPS if fast else STEPS
    return [
        {
            "rule": entry.rule,
            "chains": 1 if entry.group == "chain" else 2,
            "gamma": GAMMA,
            "steps": steps,
            "tokens": entry.tokens_per_step,
            "error": entry.error,
            "tv": entry.tv,
        }
        for entry in compare(
            *default_pair(), names=RULES, gamma=GAMMA, steps=steps, rng=rng, progress=progress
        )
    ]
