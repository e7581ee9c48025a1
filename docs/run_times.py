"""Writes the plan of docs/running-on-a-cluster.md: how long runs take on so many cores, from rates measured here, now.

A rate is the median of five runs on one thread, by the seconds of processor time that they took. The plan divides; nothing in it but the rates was measured.
"""

from __future__ import annotations

import re
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

from specsim import default_pair, simulate
from specsim.core.distributions import synthetic_pair

PAGE = Path(__file__).parent / "running-on-a-cluster.md"
CORES = (1, 16, 128, 1024)
#: What is measured: name, pair, steps of one measurement.
RUNS: tuple[tuple[str, Any, int], ...] = (
    ("a Zipf pair, V = 1000", synthetic_pair("zipf", 1000, 0.8), 10_000_000),
    ("the n-gram pair", default_pair(), 10_000),
)
#: For each of them, the steps that are planned.
PLANNED = ((10**10, 10**11, 10**12), (10**8, 10**9, 10**10))
UNITS = ((86400 * 365, "years"), (86400, "days"), (3600, "h"), (60, "min"), (1, "s"))


def rate(pair: Any, steps: int) -> float:
    """Steps per second of the standard rule, γ = 5, on one thread."""
    simulate(*pair, steps=100, rng=0, threads=1)  # compiles
    seconds = []
    for seed in range(5):
        started = process_time()
        simulate(*pair, steps=steps, rng=seed, threads=1)
        seconds.append(process_time() - started)
    return steps / median(seconds)


def written(seconds: float) -> str:
    """In the largest unit of which it is one at least."""
    size, unit = next((one for one in UNITS if seconds >= one[0]), UNITS[-1])
    return f"{seconds / size:.2g} {unit}"


def plan() -> str:
    lines = [
        "| steps | " + " | ".join(f"{cores:,} core{'s' if cores > 1 else ''}" for cores in CORES) + " |",
        "| ---: |" + " ---: |" * len(CORES),
    ]
    rates = [rate(pair, steps) for _, pair, steps in RUNS]
    for (name, *_), speed, planned in zip(RUNS, rates, PLANNED, strict=True):
        for steps in planned:
            power = len(str(steps)) - 1
            times = " | ".join(written(steps / speed / cores) for cores in CORES)
            lines.append(f"| {name}: 10^{power} | {times} |")
    measured = " and ".join(
        f"{speed:,.0f} for {name}"
        for (name, *_), speed in zip(RUNS, (float(f"{one:.2g}") for one in rates), strict=True)
    )
    return f"Measured steps per second of one core: {measured}.\n\n" + "\n".join(lines)


def main() -> None:
    text = PAGE.read_text(encoding="utf-8")
    begin, end = "<!-- plan -->", "<!-- end of plan -->"
    made = re.sub(f"{begin}.*{end}", lambda _: f"{begin}\n\n{plan()}\n\n{end}", text, flags=re.DOTALL)
    PAGE.write_text(made, encoding="utf-8")


if __name__ == "__main__":
    main()
