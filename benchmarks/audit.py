"""What an audit of somebody's verifier costs beside the verifier itself. Usage: python benchmarks/audit.py

For each case up to V = 1,000: the time to make the rows, hand them over, check and count what comes back, as a multiple of
what the built-in row verifier takes on the same rows. Both are timed in turn, and the median of the ratios is printed.
"""

from __future__ import annotations

import time

import numpy as np

from specsim import rules
from specsim.auditing.contract import Declared
from specsim.auditing.rows import rows_of
from specsim.auditing.subjects import VerifierSubject
from specsim.engine import run
from specsim.readers import Rows
from specsim.sources import rule_verifier

WANTED, ROUNDS, STEPS, KEY = 3.0, 5, 2**14, (1, 2)


def main() -> None:
    standard = rules.get("standard")
    subject = VerifierSubject("nothing", nothing, Declared())
    print(f"{'case':<22}{'V':>6}{'verifier, ns a step':>22}{'harness / verifier':>22}   wanted ≤ {WANTED:g}")
    for index, case in enumerate(subject.cases):
        if case.target.vocab_size > 1000:
            continue
        trial, reader = subject.trial(index, "smoke"), rows_of(case)
        verify = rule_verifier(standard, case.tree)
        size = max(1, 2**21 // case.step_bytes)
        rows = reader.rows(KEY, 0, size)
        rows = Rows(rows.draft_tokens, rows.p, rows.q, rows.parents)
        once(trial), verify(rows, KEY, 0)
        ratios = []
        for _ in range(ROUNDS):
            spent = seconds(lambda trial=trial: once(trial))
            alone = seconds(
                lambda rows=rows, verify=verify, size=size: [
                    verify(rows, KEY, 0) for _ in range(STEPS // size)
                ]
            )
            alone *= STEPS / (STEPS // size * size)
            ratios.append(spent / alone)
        print(
            f"{case.name:<22}{case.target.vocab_size:>6}{1e9 * alone / STEPS:>22.0f}{np.median(ratios):>22.2f}",
            flush=True,
        )


def nothing(draft_tokens, p, q, rng):  # type: ignore[no-untyped-def]
    """The least that a verifier can do: one token for each row, always the same."""
    output = np.full((len(p), p.shape[1]), -1)
    output[:, 0] = np.argmax(p[:, 0] > 0, axis=1)
    return output


def once(trial) -> None:  # type: ignore[no-untyped-def]
    run(trial.source, trial.tally, KEY, 0, STEPS, threads=1)


def seconds(work) -> float:  # type: ignore[no-untyped-def]
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
