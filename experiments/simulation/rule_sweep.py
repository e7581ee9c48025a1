"""Every rule on the n-gram pair, the lossy ones with several values of each parameter: tokens per step and
total variation.

`specsim.compare` with `sweep`: γ = 5, and two chains of 5 tokens for rules that take several drafts.
"""

from dataclasses import asdict

from experiments import Progress, Row
from specsim import compare, default_pair

TITLE = "Tokens per step and total variation of every rule, over the range of its parameters"
MINUTES = 5

STEPS, FAST_STEPS = 2**14, 2**9
FAST_RULES = ("standard", "block", "lenience", "typical")
#: The seed where `rng` is 0.
SEED = 1


def run(*, fast: bool, rng: int, progress: Progress | None) -> list[Row]:
    """A row for each setting of a rule; few rules with `fast`."""
    found = compare(
        *default_pair(),
        rules=FAST_RULES if fast else None,
        sweep=True,
        steps=FAST_STEPS if fast else STEPS,
        rng=SEED + rng,
        progress=progress,
    )
    return [{"source": found.source, "gamma": found.gamma, **asdict(entry)} for entry in found]
