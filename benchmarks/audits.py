"""What an audit of somebody's verifier costs beside the verifier itself.

For each case up to V = 1,000: the time to make the rows, hand them over, check and count what comes back, as
a multiple of what the built-in standard rule takes on them, called from Python as somebody's verifier would
be. Last the whole of these cases, each with as many steps as level quick gives it. Both are taken in the same
runs, in time of the processor, and of several runs the least counts: other work on the machine only ever
adds.
"""

from __future__ import annotations

import time
from dataclasses import replace

from benchmarks._report import Report
from specsim import rules
from specsim.auditing._cases.battery import battery
from specsim.auditing._checks.subjects import VerifierSubject, rule_function, verifier_steps
from specsim.auditing._verifier.contract import Declared
from specsim.auditing._verifier.local import Local
from specsim.simulation._counting import run

WANTED, ROUNDS, STEPS, KEY = "≤ 1", 9, 2**15, (1, 2)


def measure(report: Report) -> None:
    whole_verifier = whole_harness = 0.0
    for index, case in enumerate(battery(Declared())):
        if case.target.vocab_size > 1000:
            continue
        once(index)
        verifier, harness = (min(times) for times in zip(*(once(index) for _ in range(ROUNDS)), strict=True))
        name = f"audit beside its verifier: {case.name}, V = {case.target.vocab_size:,}"
        report.add(name, harness / verifier, WANTED, f"verifier {1e9 * verifier / STEPS:.0f} ns a step")
        steps = verifier_steps(case, "quick")
        whole_verifier, whole_harness = whole_verifier + steps * verifier, whole_harness + steps * harness
    report.add("audit beside its verifier: all of them, at quick", whole_harness / whole_verifier, WANTED)


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
