"""Rows of models: steps a second of Markov and n-gram pairs."""

from __future__ import annotations

import numpy as np

import specsim
from benchmarks._report import Report, in_turn
from specsim.core.distributions import synthetic_pair
from specsim.models import default_pair, markov_pair

STEPS = 2**19


def measure(report: Report) -> None:
    fixed = synthetic_pair("zipf", 32, 0.8)

    def beside() -> object:
        return specsim.simulate(*fixed, gamma=5, steps=16 * STEPS, rng=1, threads=2)

    for name, pair in (("Markov pair, V = 32", markov_pair(32, rng=1)), ("n-gram pair", default_pair())):

        def rows(pair: object = pair) -> object:
            return specsim.simulate(pair, gamma=5, steps=STEPS, rng=1, threads=2)  # type: ignore[arg-type]

        slow, fast = in_turn(rows, beside)
        rate = f"{STEPS / np.median(slow) / 1e6:.1f} million steps/s; wanted are 5"
        report.add(f"time of a step: {name} / fixed pair, V = 32", 16 * slow / fast, "", rate)
