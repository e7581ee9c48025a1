"""What an audit of somebody's verifier costs beside the verifier itself. Usage: python benchmarks/audit.py

For each case up to V = 1,000: the time to make the rows, hand them over, check and count what comes back, as
a multiple of what the built-in standard rule takes on them, called from Python as somebody's verifier would
be. Last the whole of these cases, each with as many steps as level quick gives it. Both are taken in the same
runs, in time of the processor, and of several runs the least counts: other work on the machine only ever
adds.
"""

from __future__ import annotations

import time
from dataclasses import replace

from specsim import rules
from specsim.auditing._cases.battery import battery
from specsim.auditing._checks.subjects import VerifierSubject, rule_function, verifier_steps
from specsim.auditing._verifier.contract import Declared
from specsim.auditing._verifier.local import Local
from specsim.simulation._counting import run

WANTED, ROUNDS, STEPS, KEY = 3.0, 9, 2**15, (1, 2)


def main() -> None:
    print(f"{'case':<22}{'V':>6}{'verifier, ns a step':>22}{'harness / verifier':>22}   wanted ≤ {WANTED:g}")
    whole_verifier = whole_harness = 0.0
    for index, case in enumerate(battery(Declared())):
        if case.target.vocab_size > 1000:
            continue
        once(index)
        verifier, harness = (min(times) for times in zip(*(once(index) for _ in range(ROUNDS)), strict=True))
        print(
            f"{case.name:<22}{case.target.vocab_size:>6}{1e9 * verifier / STEPS:>22.0f}"
            f"{harness / verifier:>22.2f}",
            flush=True,
        )
        steps = verifier_steps(case, "quick")
        whole_verifier, whole_harness = whole_verifier + steps * verifier, whole_harness + steps * harness
    print(f"{'all of them, at quick':<50}{whole_harness / whole_verifier:>22.2f}")


def once(index: int) -> tuple[float, float]:
    """Seconds of one run of a case: inside the verifier, and outside it."""
    standard, inside = rule_function(rules.get("standard")), 0.0

    def timed(*arguments):  # type: ignore[no-untyped-def]
        nonlocal inside
        started = time.process_time()
        tokens = standard(*arguments)
        inside += time.process_time() - started
        return tokens

    subject = VerifierSubject("standard", Local(timed))
    source, tally = subject.counter(subject.cases[index].name)
    # efficiency is told by a second verification, which is no part of this
    tally = replace(tally, reference=None)
    started = time.process_time()
    run(source, tally, KEY, 0, STEPS, threads=1)
    return inside, time.process_time() - started - inside


if __name__ == "__main__":
    main()
