"""What an audit of somebody's verifier costs beside the verifier itself. Usage: python benchmarks/audit.py

For each case up to V = 1,000: the time to make the rows, hand them over, check and count what comes back, as a multiple of
what the built-in standard rule takes on them, called from Python as somebody's verifier would be. It is taken with a
verifier that gives the rule's tokens again without looking; the rule's own is what it takes longer. Of several runs the
least counts, in time of the processor: other work on the machine only ever adds.
"""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import cycle

from specsim import rules
from specsim.auditing.cases import battery
from specsim.auditing.contract import Declared
from specsim.auditing.subjects import VerifierSubject, rule_function
from specsim.engine import run

WANTED, ROUNDS, STEPS, KEY = 3.0, 9, 2**15, (1, 2)


def main() -> None:
    standard = rule_function(rules.get("standard"))
    print(f"{'case':<22}{'V':>6}{'verifier, ns a step':>22}{'harness / verifier':>22}   wanted ≤ {WANTED:g}")
    for index, case in enumerate(battery(Declared())):
        if case.target.vocab_size > 1000:
            continue
        noted = Noted(standard)
        once(index, noted)
        harness = min(once(index, noted.again()) for _ in range(ROUNDS))
        verifier = min(once(index, standard) for _ in range(ROUNDS)) - harness
        print(
            f"{case.name:<22}{case.target.vocab_size:>6}{1e9 * verifier / STEPS:>22.0f}{harness / verifier:>22.2f}",
            flush=True,
        )


class Noted:
    """A verifier, and what it returned, call by call."""

    def __init__(self, verify):  # type: ignore[no-untyped-def]
        self.verify, self.answers = verify, []

    def __call__(self, *arguments):  # type: ignore[no-untyped-def]
        self.answers.append(self.verify(*arguments))
        return self.answers[-1]

    def again(self):  # type: ignore[no-untyped-def]
        """A verifier that gives the same answers without looking."""
        answers = cycle(self.answers)
        return lambda *arguments: next(answers)


def once(index, verify) -> float:  # type: ignore[no-untyped-def]
    """Seconds of one run of a case."""
    trial = VerifierSubject("standard", verify, Declared()).trial(index, "quick")
    # efficiency is told by a second verification, which is no part of this
    trial = replace(trial, tally=replace(trial.tally, reference=None))
    started = time.process_time()
    run(trial.source, trial.tally, KEY, 0, STEPS, threads=1)
    return time.process_time() - started


if __name__ == "__main__":
    main()
