"""What lossy rules gain, and what they give up: speed against total variation, over the range of their
parameters.

On the n-gram pair, `specsim.simulation.compare` sweeps lenience with both residuals (Leviathan et al., arXiv
2211.17192, A.5), greedy lenience (the same section), Medusa's typical acceptance (arXiv 2401.10774) and the
cascade that defers where it pays (arXiv 2405.19261), and simulates the standard rule beside them. Steps begin
at contexts of held-out text. The total variation is that between a token's declared law and the target's row,
a mean over contexts: each rule's own claim, which its audit tests. Improvement in wall time is tokens per
step/(γc + 1) at c = `C` (Thm 3.8). Greedy lenience and typical acceptance aim at the argmax: none of their
settings is near the target.
"""

from __future__ import annotations

from experiments import Row
from specsim.core._progress import Progress
from specsim.models import default_pair
from specsim.simulation import compare

TITLE = "Lossy rules on the n-gram pair: speed against total variation"

RULES = ("standard", "lenience", "scaled_lenience", "greedy_lenience", "typical", "cascade_opt")
GAMMA, C = 5, 0.05
STEPS, FAST_STEPS = 2**14, 2**9


def run(*, fast: bool, rng: int, progress: Progress | None) -> list[Row]:
    """A row for each setting of a rule, in the order of the swept parameter; errors are standard errors."""
    steps = FAST_STEPS if fast else STEPS
    return [
        {
            "line": entry.line,
            "rule": entry.rule,
            "gamma": GAMMA,
            "c": C,
            "steps": steps,
            "tokens": entry.tokens_per_step,
            "error": entry.error,
            "improvement": entry.tokens_per_step / (GAMMA * C + 1.0),
            "tv": entry.tv,
        }
        for entry in compare(
            *default_pair(), names=RULES, gamma=GAMMA, steps=steps, sweep=True, rng=rng, progress=progress
        )
    ]
