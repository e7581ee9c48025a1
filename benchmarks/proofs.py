"""`specsim.prove` beside a plain program in Python's fractions, and without gmpy2, each in a process of its
own."""

from __future__ import annotations

import subprocess
import sys

import numpy as np

from benchmarks._report import Report

SIZES = ((8, 4), (32, 2))

PROGRAM = """
import sys, time
kind, size, gamma = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
if kind == "without gmpy2":
    sys.modules["gmpy2"] = None
import specsim
from benchmarks.fractions_baseline import is_exact
from specsim.core.distributions import dyadic, synthetic_pair
from specsim.models import TableModel
p, q = (dyadic(row) for row in synthetic_pair("zipf", size, 0.8, rng=0))
p_model, q_model = TableModel(p), TableModel(q)
specsim.prove(p_model, q_model, gamma=1)
started = time.process_time()
exact = is_exact(p, q, gamma) if kind == "plain" else specsim.prove(p_model, q_model, gamma=gamma).exact
print(time.process_time() - started)
assert exact
"""


def measure(report: Report) -> None:
    for size, gamma in SIZES:
        plain, without, fast = (
            np.array([_seconds(kind, size, gamma) for _ in range(3)])
            for kind in ("plain", "without gmpy2", "prove")
        )
        drafts = f"{size}^{gamma} drafts"
        seconds = f"{np.median(plain):.2f} and {np.median(fast):.2f} s"
        report.add(f"prove: a plain program in fractions / prove, {drafts}", plain / fast, "≥ 10", seconds)
        report.add(f"prove: without gmpy2 / with it, {drafts}", without / fast)


def _seconds(*arguments: object) -> float:
    command = [sys.executable, "-c", PROGRAM, *map(str, arguments)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
