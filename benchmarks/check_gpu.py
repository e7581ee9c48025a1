"""`make check-gpu`: run on an NVIDIA GPU what specsim has for one, in at most eight minutes.

A line says *ok* or *WRONG*: counts of fixed pairs and of rows equal those of the CPU; the tests of device
code pass, compiled instead of simulated; no right verifier on the GPU is called wrong. Other lines have
speeds. The program writes what it measured to results/gpu.json, and exits with 1 if anything is wrong, 2
without a GPU.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import specsim
from benchmarks._cuda_parts import speeds_of
from benchmarks.models import markov_pair
from specsim import default_pair, rules
from specsim.core._cuda import SIMULATED, DeviceError, current_device
from specsim.distributions import synthetic_pair
from specsim.models import PromptLookup
from specsim.rules import Rule
from specsim.simulation._comparison import draft_for
from specsim.simulation._cuda.steps import STEPS

ROOT = Path(__file__).parents[1]
#: Seconds after which a part begins nothing more.
PATIENCE = {"pairs": 60, "speed": 90, "rows": 270, "tests": 340, "audits": 440}
#: Steps a second of a fixed pair that a GPU of a data centre must reach.
WANTED = 2e9
#: What is audited on the device: a right verifier, and engines' own kernels where they are installed.
VERIFIERS = (
    "benchmarks._torch_verifier:verify",
    "vllm",
    "vllm2",
    "vllm2:block",
    "sglang:chain",
    "flashinfer",
)


class Check:
    """What was found so far, and when the check began."""

    def __init__(self, scale: float):
        self.scale, self.begun = scale, time.monotonic()
        self.found: dict[str, Any] = {}
        self.wrong: list[str] = []

    def begins(self, part: str) -> bool:
        """Whether there is time to go on with a part."""
        return time.monotonic() - self.begun < PATIENCE[part]

    def steps(self, count: int) -> int:
        """A number of steps, fewer for a small check, and odd."""
        return max(257, int(count * self.scale)) | 1

    def says(self, fine: bool, what: str) -> None:
        """Print a line, and keep what is wrong."""
        if not fine:
            self.wrong.append(what)
        print("ok   " if fine else "WRONG", what, f"({time.monotonic() - self.begun:.0f} s)", flush=True)

    def same(self, what: str, *given: Any, **named: Any) -> None:
        """Check that a simulation has the same counts on both devices."""
        try:
            one, other = (specsim.simulate(*given, **named, device=device) for device in ("cpu", "cuda"))
        except ValueError as error:  # what the device refuses
            print("left out", what, f"{error}"[:150], flush=True)
            return
        equal = (one.lengths == other.lengths).all() and (one.tokens == other.tokens).all()
        self.says(bool(equal) and other.lengths.sum() == named["steps"], what)


def check_pairs(check: Check) -> None:
    """Fixed pairs: every rule with device code, every kind of pair, sizes, lengths, and several launches."""
    having = [name for name in rules.names() if _kernel(name) in STEPS]
    for name in having:
        check.same(
            f"{name}, V = 1,000",
            *synthetic_pair("zipf", 1000, 0.8, rng=0),
            rule=name,
            steps=check.steps(300_000),
            rng=1,
        )
    sizes = [(2, 1), (32, 5), (1000, 16), (32_000, 5), (128_256, 5), (131_073, 16)]
    kinds = ["geometric", "dirichlet", "two-point", "one-hot", "near-equal", "asymmetric"]
    cases = [("zipf", *size) for size in sizes] + [(kind, 500, 4) for kind in kinds]
    for (kind, V, gamma), name in itertools.product(cases, ("standard", "block")):
        if check.begins("pairs"):
            pair = synthetic_pair(kind, V, 0.7, rng=0)
            check.same(
                f"{name}, {kind}, V = {V:,}, γ = {gamma}",
                *pair,
                rule=name,
                gamma=gamma,
                steps=check.steps(200_000),
                rng=2,
            )
    check.same(
        "four launches", *synthetic_pair("zipf", 1000, 0.8, rng=0), steps=check.steps(3 * 2**25 + 10), rng=4
    )
    for name in ("standard", "lenience"):
        given = {"rule": name, "steps": check.steps(2**24), "rng": 3}
        check.same(f"{name}, Markov pair, V = 32", *markov_pair(32), **given)


def _kernel(name: str) -> Any:
    fixed = rules.get(name).fixed_pair
    return fixed and fixed.kernel


def check_rows(check: Check) -> None:
    """Rows: the row kernel of every rule, compiled for the device."""
    target, draft = default_pair()
    words = b"to be or not to be, that is the question: to be is to do. "
    text = PromptLookup(np.array([*words] * 20, np.int32))
    check.same("rows of prompt lookup", target, text, gamma=4, steps=check.steps(500), rng=5)
    for name in rules.names():
        if not check.begins("rows"):
            print("left out", name, "and those after it: no time")
            return
        rule: Rule = rules.get(name)
        check.same(
            f"rows of {name}",
            target,
            draft,
            rule=rule,
            gamma=draft_for(rule, 4, 2),
            steps=check.steps(1_000),
            rng=5,
        )


def check_tests(check: Check) -> None:
    """The tests of device code, on the device."""
    names = ["tests/simulation/test_cuda.py", "tests/simulation/test_cuda_rows.py"]
    options = ["-q", "-p", "no:cacheprovider", "-o", "addopts=", "-o", "filterwarnings="]
    code, said = _run(check, "tests", "pytest", *options, *names)
    check.says(code == 0, f"tests of device code: {said[-1]}")


def check_audits(check: Check) -> None:
    """Audits on the device: no right verifier is called wrong."""
    for name in VERIFIERS:
        if check.begins("audits"):
            code, said = _run(
                check,
                "audits",
                "specsim",
                "audit",
                name,
                "--level",
                "smoke",
                "--seed",
                "1",
                "--timeout",
                "200",
            )
            if any("is not there" in line for line in said):
                print("left out", name, "which is not installed", flush=True)
                continue
            check.found[f"audit {name}"] = said
            check.says(code in (0, 3), f"audit of {name}: exit code {code}")


def _run(check: Check, part: str, module: str, *options: str) -> tuple[int | None, list[str]]:
    """Run a module with options, print its last lines, and give its exit code and all lines."""
    left = max(20.0, PATIENCE[part] + 30 - (time.monotonic() - check.begun))
    command = [sys.executable, "-m", module, *options]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=left, check=False)
    except subprocess.TimeoutExpired:
        return None, [f"not ready after {left:.0f} s"]
    said = (done.stdout + done.stderr).splitlines() or ["nothing was said"]
    print("\n".join(said[-8:]), flush=True)
    return done.returncode, said


def measure_speed(check: Check, multiprocessors: int) -> None:
    """Steps of fixed pairs a second."""
    for name, V in itertools.product(("standard", "block"), (32, 1000, 32_000, 128_256)):
        if check.begins("speed"):
            speeds = speeds_of(name, V, check.steps(2**31), multiprocessors, rounds=3)
            row = {part: float(np.median(found)) for part, found in speeds.items()}
            check.found[f"{name}, V = {V}"] = row
            fine = "ok   " if row["in all"] >= WANTED else "SLOW "
            said = ", ".join(f"{part} {speed:.3g}" for part, speed in row.items())
            print(f"{fine} {name}, V = {V:,}, steps/s: {said}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.check_gpu", description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the steps, for a small check")
    parser.add_argument("--out", type=Path, default=Path("results/gpu.json"))
    given = parser.parse_args()
    try:
        name, multiprocessors, free = current_device()
    except DeviceError as error:
        print(error, file=sys.stderr)
        return 2
    print(
        f"{name}, {multiprocessors} multiprocessors, {free / 2**30:.0f} GiB free; {os.cpu_count()} CPUs",
        flush=True,
    )
    check = Check(given.scale)
    check_pairs(check)
    measure_speed(check, multiprocessors)
    check_rows(check)
    if not SIMULATED:
        check_tests(check)
        check_audits(check)
    check.found |= {"device": name, "wrong": check.wrong, "seconds": time.monotonic() - check.begun}
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(check.found, indent=1) + "\n", encoding="utf-8")
    print("wrong: " + "; ".join(check.wrong) if check.wrong else "all counts are those of the CPU", given.out)
    return bool(check.wrong)


if __name__ == "__main__":
    sys.exit(main())
