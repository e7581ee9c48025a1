"""The γ with the largest improvement in wall time, against α: Figure 3 of Leviathan et al., arXiv 2211.17192.

argmax over γ of (1 - α^{γ+1})/((1 - α)(γc + 1)) (Thm 3.8), for c = .01, .02, .05, .1 and α from .5 to .9 by
.0005. The curves go from 5 to 24, from 4 to 19, from 3 to 13 and from 2 to 10.
"""

import numpy as np

from experiments import Progress, Row
from specsim.theory import optimal_gamma

TITLE = "The best γ against α, after Leviathan et al., Figure 3"

COSTS = (0.01, 0.02, 0.05, 0.1)
ALPHAS = np.linspace(0.5, 0.9, 801)


def run(*, fast: bool, rng: int, progress: Progress | None) -> list[Row]:
    """A row for each c and α."""
    return [
        {"c": c, "alpha": alpha, "gamma": gamma}
        for c in COSTS
        for alpha, gamma in zip(ALPHAS.tolist(), np.asarray(optimal_gamma(ALPHAS, c)).tolist(), strict=True)
    ]
