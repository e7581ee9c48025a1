"""Tokens that a step emits, against α: Figure 2 of Leviathan, Kalman & Matias, arXiv 2211.17192.

E[tokens] = (1 - α^{γ+1})/(1 - α) (Eq. 1) for γ = 1, 3, 5, 7, and 1/(1 - α) for γ = ∞; the target alone emits
1. α is from .5 to .9. At α = .9 the curves end at 1.90, 3.439, 4.686, 5.695 and 10.
"""

import numpy as np

from experiments import Progress, Row
from specsim.theory import expected_tokens, oracle_improvement

TITLE = "Tokens per step against α, after Leviathan et al., Figure 2"

GAMMAS = (1, 3, 5, 7, None)
ALPHAS = np.linspace(0.5, 0.9, 81)


def run(*, fast: bool, rng: int, progress: Progress | None) -> list[Row]:
    """A row for each γ, None for ∞, and α."""
    rows: list[Row] = []
    for gamma in GAMMAS:
        # without end, a step emits what it would if it drafted just the tokens that pass, at no cost
        tokens = oracle_improvement(ALPHAS, 0.0) if gamma is None else expected_tokens(ALPHAS, gamma)
        rows += [
            {"gamma": gamma, "alpha": alpha, "tokens": value}
            for alpha, value in zip(ALPHAS.tolist(), np.asarray(tokens).tolist(), strict=True)
        ]
    return rows
