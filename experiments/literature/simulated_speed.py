"""Speed and operations from simulated steps beside the closed forms, in the ranges of Figures 2 and 4 of
Leviathan et al.

Pairs of Zipf rows with Σ min(p, q) = α are sampled by the standard rule (arXiv 2211.17192, Algorithm 1), a
million steps for each α and γ; accepted lengths are counted, and the mean tokens of a step, with its standard
error, gives the improvement in wall time tokens/(γc + 1) and the operations (γĉ + γ + 1)/tokens, at c = ĉ =
.05. One pair at every position makes acceptances independent, so that Eq. 1 and Thms 3.8 and 3.11 hold
exactly: points belong on the lines.
"""

from typing import NamedTuple

import numpy as np

from experiments import Row
from specsim import simulate
from specsim.distributions import synthetic_pair
from specsim.theory import expected_tokens, operations_factor, walltime_improvement

TITLE = "Speed and operations from simulated steps, and the closed forms"

C = 0.05
GAMMAS = (1, 3, 5, 7, 10)
VOCAB_SIZE = 1000
STEPS, FAST_STEPS = 2**20, 2**14


class Cell(NamedTuple):
    """One pair, simulated, or one point of a line."""

    number: int
    simulated: bool
    gamma: int
    alpha: float


def cells(*, fast: bool) -> list[Cell]:
    """Points from α = .5 to .9 by .05, lines by .005."""
    wanted = [
        (simulated, gamma, alpha)
        for simulated, count in ((True, 9), (False, 81))
        for gamma in GAMMAS
        for alpha in np.linspace(0.5, 0.9, count).tolist()
    ]
    return [Cell(number, *cell) for number, cell in enumerate(wanted)]


def run_cell(cell: Cell, *, fast: bool, rng: int) -> Row:
    """Tokens per step, improvement and operations; for a simulated cell their standard errors, and how many
    of these the tokens are away from the closed form."""
    _, simulated, gamma, alpha = cell
    closed = float(expected_tokens(alpha, gamma))
    row: Row = {
        "kind": "simulated" if simulated else "closed form",
        "gamma": gamma,
        "alpha": alpha,
        "c": C,
        "tokens": closed,
        "improvement": walltime_improvement(alpha, gamma, C),
        "operations": operations_factor(alpha, gamma, C),
    } | dict.fromkeys(("steps", "tokens_error", "improvement_error", "operations_error", "deviation"))
    if not simulated:
        return row
    run = simulate(
        *synthetic_pair("zipf", VOCAB_SIZE, alpha, rng=0),
        gamma=gamma,
        steps=FAST_STEPS if fast else STEPS,
        rng=np.random.SeedSequence(rng, spawn_key=(cell.number,)),
    )
    tokens, error = run.tokens_per_step, run.tokens_per_step_error
    operations = (gamma * C + gamma + 1) / tokens
    return row | {
        "tokens": tokens,
        "improvement": tokens / (gamma * C + 1),
        "operations": operations,
        "steps": run.steps,
        "tokens_error": error,
        "improvement_error": error / (gamma * C + 1),
        "operations_error": operations * error / tokens,
        "deviation": (tokens - closed) / error,
    }
