"""Rows of models: steps a second of Markov and n-gram pairs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import specsim
from benchmarks._report import Report, in_turn
from specsim import default_pair
from specsim.core._streams import key_of
from specsim.distributions import synthetic_pair
from specsim.models import Model, TableModel
from specsim.simulation._counting import StepTally, run
from specsim.simulation._sources import FewContextsSource, ModelSource, make_source, rule_verifier

#: Long enough for the first rows, which are made as steps come to them, to count little.
STEPS = 2**21


def markov_pair(vocab_size: int) -> tuple[TableModel, TableModel]:
    """Two Markov tables; the target's rows are a mixture of the draft's and others."""
    one, other = np.random.default_rng(1).dirichlet(np.full(vocab_size, 0.5), (2, vocab_size))
    return TableModel(0.6 * one + 0.4 * other), TableModel(other)


def measure(report: Report) -> None:
    fixed = synthetic_pair("zipf", 32, 0.8, rng=0)

    def beside() -> object:
        return specsim.simulate(*fixed, gamma=5, steps=4 * STEPS, rng=1, threads=2)

    pairs: dict[str, tuple[Model, Model]] = {
        "Markov pair, V = 32": markov_pair(32),
        "n-gram pair": default_pair(),
    }
    for name, pair in pairs.items():

        def rows(pair: tuple[Model, Model] = pair) -> object:
            return specsim.simulate(*pair, gamma=5, steps=STEPS, rng=1, threads=2)

        slow, fast = in_turn(rows, beside)
        rate = f"{STEPS / np.median(slow) / 1e6:.1f} million steps/s; wanted are 5"
        report.add(f"time of a step: {name} / fixed pair, V = 32", 4 * slow / fast, "", rate)
    in_integers(report, *pairs["Markov pair, V = 32"])


def in_integers(report: Report, *pair: Model) -> None:
    """Tables of entries beside the tables that grow, which larger models have."""
    few = make_source(*pair, rule="standard", gamma=5)
    assert isinstance(few, FewContextsSource)
    growing = ModelSource(few.reader, rule_verifier(few.rule, few.tree), rule=few.rule)

    def counting(source: FewContextsSource | ModelSource) -> Callable[[], object]:
        tally = StepTally(source.tree.depth, source.vocab_size)
        return lambda: run(source, tally, key_of(1), 0, STEPS, threads=2)

    slow, fast = in_turn(counting(growing), counting(few))
    report.add("steps/s: Markov pair, V = 32, in integers / from tables that grow", slow / fast, "≥ 2")
