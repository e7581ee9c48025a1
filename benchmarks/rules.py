"""What every rule costs on a fixed pair, beside the standard rule, and at a large vocabulary beside a small
one.

Usage: python benchmarks/rules.py. Both columns are ratios within this run, rivals timed in turn; the first is
per drafted token, trees having two chains of five.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

import specsim
from specsim import rules
from specsim.core.distributions import synthetic_pair
from specsim.simulation._comparison import draft_for

GAMMA, DRAFTS, ROUNDS, STEPS = 5, 2, 3, 2**19


def ratio(one: Callable[[], object], other: Callable[[], object]) -> tuple[float, float]:
    """Median of the pairwise ratios of seconds, after a warm-up, and the median seconds of `one`."""
    one(), other()
    pairs = np.array([(seconds(one), seconds(other)) for _ in range(ROUNDS)])
    return float(np.median(pairs[:, 0] / pairs[:, 1])), float(np.median(pairs[:, 0]))


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def run(name: str, vocab_size: int) -> Callable[[], object]:
    tree = draft_for(rules.get(name), GAMMA, DRAFTS)
    p, q = synthetic_pair("zipf", vocab_size, 0.8)
    return lambda: specsim.simulate(p, q, rule=name, gamma=tree, steps=STEPS, rng=1, threads=1)


def main() -> None:
    print(f"{'rule':<32}{'ns/step':>8}{'/ standard, per token':>24}{'V = 32,000 / 1,000':>22}")
    for name in rules.names():
        drafted = draft_for(rules.get(name), GAMMA, DRAFTS).size
        against, took = ratio(run(name, 1000), run("standard", 1000))
        large, _ = ratio(run(name, 32_000), run(name, 1000))
        print(
            f"{name:<32}{took / STEPS * 1e9:8.0f}{against * GAMMA / drafted:24.2f}{large:22.2f}", flush=True
        )


if __name__ == "__main__":
    main()
