"""What an audit of somebody's verifier costs beside the verifier itself.

For each case up to V = 1,000: the time to make the rows, hand them over, check and count what comes back, as
a multiple of what the built-in standard rule takes on them, called from Python as somebody's verifier would
be. Then the whole of these cases, each with as many steps as level quick gives it. Last, for V = 131,072,
where verifiers are bound by memory, what the audit takes beside one reading of the rows: in this process, and
all that two processes take if the verifier is in a child. Times are those of the processor, and of several
runs the least counts: other work on the machine only ever adds.
"""

from __future__ import annotations

import os
import time
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks._report import Report
from specsim import rules
from specsim.adapters import Verifier
from specsim.adapters._contract import Declared
from specsim.auditing._cases.battery import battery
from specsim.auditing._checks.subjects import VerifierSubject, rule_function, verifier_steps
from specsim.auditing._verifier.child import Child
from specsim.auditing._verifier.local import Local
from specsim.simulation._counting import run

WANTED, ROUNDS, STEPS, KEY = "≤ 1", 9, 2**15, (1, 2)
LARGE, LARGE_ROUNDS = "flat tail 131 072", 3


def measure(report: Report) -> None:
    whole_verifier = whole_harness = 0.0
    for index, case in enumerate(battery(Declared())):
        if case.target.vocab_size > 1000:
            continue
        standard = rule_function(rules.get("standard"))
        once(index, standard, STEPS)
        verifier, harness = least(index, standard, STEPS, ROUNDS)
        name = f"audit beside its verifier: {case.name}, V = {case.target.vocab_size:,}"
        report.add(name, harness / verifier, WANTED, f"verifier {1e9 * verifier / STEPS:.0f} ns a step")
        steps = verifier_steps(case, "quick")
        whole_verifier, whole_harness = whole_verifier + steps * verifier, whole_harness + steps * harness
    report.add("audit beside its verifier: all of them, at quick", whole_harness / whole_verifier, WANTED)
    beside_reading(report)


def beside_reading(report: Report) -> None:
    """Of the case with the largest rows."""
    index, case = next((i, case) for i, case in enumerate(battery(Declared())) if case.name == LARGE)
    steps = verifier_steps(case, "quick")
    reading, harness = least(index, read_rows, steps, LARGE_ROUNDS)
    rows = f"{1e3 * reading / steps:.2f} ms a step to read them"
    report.add(f"audit beside one reading of its rows: {LARGE}", harness / reading, WANTED, rows)
    whole = min(of_both_processes(steps) - of_both_processes(8) for _ in range(LARGE_ROUNDS))
    report.add(f"the same in two processes, reading included: {LARGE}", whole / reading, "≤ 2")


def read_rows(draft_tokens: Any, p: Any, q: Any, rng: Any) -> Any:
    """No verification: every row is read once, and the first drafted token is what comes out."""
    p.sum(axis=2)
    q.sum(axis=2)
    tokens = np.full((len(p), p.shape[1]), -1)
    tokens[:, 0] = draft_tokens[:, 0]
    return tokens


def of_both_processes(steps: int) -> float:
    """Seconds of the processor for `steps` steps of the case with the largest rows, with a child's start."""
    started = sum(os.times()[:4])
    with closing(Child(f"{__name__}:read_rows")) as child:
        source, tally = VerifierSubject("reading", child).counter(LARGE)
        run(source, tally, KEY, 0, steps, threads=1)
    return sum(os.times()[:4]) - started


def least(index: int, verifier: Verifier, steps: int, rounds: int) -> tuple[float, float]:
    """The least seconds of several runs, inside the verifier and outside."""
    inside, outside = (
        min(times) for times in zip(*(once(index, verifier, steps) for _ in range(rounds)), strict=True)
    )
    return inside, outside


def once(index: int, verifier: Verifier, steps: int) -> tuple[float, float]:
    """Seconds of one run of a case: inside the verifier, and outside it."""
    inside = 0.0

    def timed(*arguments):  # type: ignore[no-untyped-def]
        nonlocal inside
        started = time.process_time()
        tokens = verifier(*arguments)
        inside += time.process_time() - started
        return tokens

    subject = VerifierSubject("timed", Local(timed))
    source, tally = subject.counter(subject.cases[index].name)
    # efficiency is told by a second verification, which is no part of this
    tally = replace(tally, reference=None)
    started = time.process_time()
    run(source, tally, KEY, 0, steps, threads=1)
    return inside, time.process_time() - started - inside
