"""What every rule but the controls costs on a fixed pair: per drafted token beside the standard rule, trees
having two chains of five, and at a large vocabulary beside a small one."""

from __future__ import annotations

import numpy as np

import specsim
from benchmarks._report import Report, Work, in_turn
from specsim import rules
from specsim.distributions import synthetic_pair
from specsim.simulation._comparison import draft_for

GAMMA, DRAFTS, ROUNDS, STEPS = 5, 2, 3, 2**19

#: The rules that engines use most, of which less is wanted.
MOST_USED = {"standard", "block", "greedy_match", "recursive_rejection", "token_tree", "typical"}


def measure(report: Report) -> None:
    for name in (name for name in rules.names() if not rules.get(name).control):
        drafted = draft_for(rules.get(name), GAMMA, DRAFTS).size
        one, other = in_turn(run(name, 1000), run("standard", 1000), ROUNDS)
        took = f"{1e9 * np.median(one) / STEPS:.0f} ns a step"
        wanted = "≤ 3" if name in MOST_USED else "≤ 5"
        report.add(f"{name} / standard, per drafted token", one / other * GAMMA / drafted, wanted, took)
        large, small = in_turn(run(name, 32_000), run(name, 1000), ROUNDS)
        report.add(f"{name}, V = 32,000 / V = 1,000", large / small)


def run(name: str, vocab_size: int) -> Work:
    tree = draft_for(rules.get(name), GAMMA, DRAFTS)
    p, q = synthetic_pair("zipf", vocab_size, 0.8, rng=0)
    return lambda: specsim.simulate(p, q, rule=name, gamma=tree, steps=STEPS, rng=1, threads=1)
