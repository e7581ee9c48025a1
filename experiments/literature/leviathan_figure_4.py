"""Speed and operations against α: Figure 4 of Leviathan, Kalman & Matias, arXiv 2211.17192.

Improvement in wall time (1 - α^{γ+1})/((1 - α)(γc + 1)) (Thm 3.8), and operations (1 - α)(γĉ + γ + 1)/(1 -
α^{γ+1}) (Thm 3.11), both relative to the target alone, for γ = 1, 3, 5, 7, 10, c = ĉ = 0 and α from .5 to .9.
Operations begin, at α = .5, at 1.333, 2.133, 3.048, 4.016 and 5.503.
"""

import numpy as np

from experiments import Progress, Row
from specsim.theory import operations_factor, walltime_improvement

TITLE = "Speed and operations against α, after Leviathan et al., Figure 4"

GAMMAS = (1, 3, 5, 7, 10)
ALPHAS = np.linspace(0.5, 0.9, 81)


def run(*, fast: bool, rng: int, progress: Progress | None) -> list[Row]:
    """A row for each γ and α."""
    rows: list[Row] = []
    for gamma in GAMMAS:
        speed = np.asarray(walltime_improvement(ALPHAS, gamma, 0.0)).tolist()
        operations = np.asarray(operations_factor(ALPHAS, gamma, 0.0)).tolist()
        rows += [
            {"gamma": gamma, "alpha": alpha, "speed": faster, "operations": more}
            for alpha, faster, more in zip(ALPHAS.tolist(), speed, operations, strict=True)
        ]
    return rows
