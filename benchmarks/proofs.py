"""Enumeration in gmpy2's rational numbers beside Python's fractions, each in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import numpy as np

from benchmarks._report import Report

CASES = (("standard", 8, 4), ("block", 8, 4), ("standard", 64, 2))

PROGRAM = """
import sys, time
if sys.argv[1] == "fractions":
    sys.modules["gmpy2"] = None
import specsim
from specsim.core.distributions import dyadic, synthetic_pair
from specsim.models import TableModel
rule, size, gamma = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
p, q = (TableModel(dyadic(row)) for row in synthetic_pair("zipf", size, 0.8))
specsim.prove(p, q, rule=rule, gamma=1)
started = time.process_time()
specsim.prove(p, q, rule=rule, gamma=gamma)
print(time.process_time() - started)
"""


def measure(report: Report) -> None:
    for rule, size, gamma in CASES:
        slow, fast = (
            np.array([_seconds(kind, rule, size, gamma) for _ in range(3)]) for kind in ("fractions", "gmpy2")
        )
        name = f"prove: fractions / gmpy2, {rule}, {size}^{gamma} drafts"
        report.add(name, slow / fast, "≥ 10", f"{np.median(fast):.2f} s")


def _seconds(kind: str, *arguments: object) -> float:
    command = [sys.executable, "-c", PROGRAM, kind, *map(str, arguments)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
