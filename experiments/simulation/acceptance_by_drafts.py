"""Acceptance against the number of drafted tokens: rules for several drafts, and the largest that any rule
could reach.

A Zipf pair with Σ min(p, q) = .7, for 1 to 8 drafts of one token. A rule is simulated, and compared with its
closed form where there is one; the bounds, one for each way of drawing, are those of
`specsim.theory.optimal_acceptance`.
"""

from dataclasses import asdict

from experiments import Progress, Row
from specsim import acceptance_by_drafts
from specsim.distributions import synthetic_pair

TITLE = "Acceptance against the number of drafts, with the bounds"

VOCAB_SIZE, OVERLAP = 1000, 0.7
STEPS, FAST_STEPS = 2**18, 2**10
#: The seed where `rng` is 0.
SEED = 1


def run(*, fast: bool, rng: int, progress: Progress | None) -> list[Row]:
    """A row for each rule or bound, and number of drafts."""
    p, q = synthetic_pair("zipf", VOCAB_SIZE, OVERLAP, rng=0)
    steps = FAST_STEPS if fast else STEPS
    return [asdict(row) for row in acceptance_by_drafts(p, q, steps=steps, rng=SEED + rng)]
