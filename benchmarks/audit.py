"""What an audit of somebody's verifier costs beside the verifier itself. Usage: python benchmarks/audit.py

For each case up to V = 1,000: the time to make the rows, hand them over, check and count what comes back, as a multiple of
what the built-in standard rule takes on them, called from Python as somebody's verifier would be. Medians of several runs.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from specsim import rules
from specsim.auditing.cases import battery
from specsim.auditing.contract import Declared
from specsim.auditing.subjects import VerifierSubject, rule_function
from specsim.engine import run

WANTED, ROUNDS, STEPS, KEY = 3.0, 5, 2**15, (1, 2)


def main() -> None:
    standard = rule_function(rules.get("standard"))
    print(f"{'case':<22}{'V':>6}{'verifier, ns a step':>22}{'harness / verifier':>22}   wanted ≤ {WANTED:g}")
    for index in range(len(battery(Declared()))):
        timed = Timed(standard)
        subject = VerifierSubject("standard", timed, Declared())
        case = subject.cases[index]
        if case.target.vocab_size > 1000:
            continue
        trial = subject.trial(index, "quick")
        if case.target.order:  # its efficiency is told by a second verification, which is no part of this
            trial = replace(trial, tally=replace(trial.tally, reference=None))
        once(trial)
        ratios, alone = [], []
        for _ in range(ROUNDS):
            timed.spent = 0.0
            started = time.perf_counter()
            once(trial)
            ratios.append((time.perf_counter() - started) / timed.spent - 1.0)
            alone.append(1e9 * timed.spent / STEPS)
        print(
            f"{case.name:<22}{case.target.vocab_size:>6}{np.median(alone):>22.0f}{np.median(ratios):>22.2f}",
            flush=True,
        )


class Timed:
    """A verifier, and the seconds spent in it."""

    def __init__(self, verify):  # type: ignore[no-untyped-def]
        self.verify, self.spent = verify, 0.0

    def __call__(self, *arguments):  # type: ignore[no-untyped-def]
        started = time.perf_counter()
        tokens = self.verify(*arguments)
        self.spent += time.perf_counter() - started
        return tokens


def once(trial) -> None:  # type: ignore[no-untyped-def]
    run(trial.source, trial.tally, KEY, 0, STEPS, threads=1)


if __name__ == "__main__":
    main()
