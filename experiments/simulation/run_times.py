"""How long runs take on many cores, from the rate of one core.

A rate is the median of five runs of the standard rule with γ = 5 on one thread, by the processor time that
they took. The plan divides it by nothing but the number of cores. The rows differ from machine to machine.
"""

from collections.abc import Sequence
from statistics import median
from time import process_time
from typing import Any

from experiments import Progress, Row
from experiments._pages import markdown_table, written
from specsim import default_pair, simulate
from specsim.distributions import synthetic_pair

TITLE = "Run times on 1 to 1,024 cores, from the rate of one"

CORES = (1, 16, 128, 1024)
#: Steps of one measurement on each pair, with `fast`, and the steps that are planned.
ZIPF, NGRAM = "a Zipf pair, V = 1000", "the n-gram pair"
STEPS = {ZIPF: (100_000_000, 100_000), NGRAM: (10_000_000, 100)}
PLANNED = {ZIPF: (10, 11, 12), NGRAM: (8, 9, 10)}
UNITS = ((86400 * 365, "years"), (86400, "days"), (3600, "h"), (60, "min"), (1, "s"))


def run(*, fast: bool, rng: int, progress: Progress | None) -> list[Row]:
    """A row for each pair, power of ten of steps, and number of cores."""
    pairs = {ZIPF: synthetic_pair("zipf", 1000, 0.8, rng=0), NGRAM: default_pair()}
    rates = {name: _rate(pair, STEPS[name][fast], rng) for name, pair in pairs.items()}
    return [
        {
            "pair": name,
            "steps_per_second": rate,
            "log10_steps": power,
            "cores": cores,
            "seconds": 10.0**power / rate / cores,
        }
        for name, rate in rates.items()
        for power in PLANNED[name]
        for cores in CORES
    ]


def _rate(pair: Any, steps: int, rng: int) -> float:
    """Steps per second on one thread."""
    simulate(*pair, steps=100, rng=rng, threads=1)  # compiles
    seconds = []
    for seed in range(rng, rng + 5):
        started = process_time()
        simulate(*pair, steps=steps, rng=seed, threads=1)
        seconds.append(process_time() - started)
    return steps / median(seconds)


def page(rows: Sequence[Row]) -> str:
    """docs/results/run-times.md."""
    rates = dict.fromkeys((row["pair"], row["steps_per_second"]) for row in rows)
    measured = " and ".join(f"{float(f'{rate:.2g}'):,.0f} for {name}" for name, rate in rates)
    lines = []
    for name, power in dict.fromkeys((row["pair"], row["log10_steps"]) for row in rows):
        times = [row["seconds"] for row in rows if (row["pair"], row["log10_steps"]) == (name, power)]
        lines.append([f"{name}: 10^{power}", *map(_shown, times)])
    head = ["steps", *(f"{cores:,} core{'s' if cores > 1 else ''}" for cores in CORES)]
    table = markdown_table(head, lines, numbers=len(head))
    return written("run-times", {"measured": measured, "table": table})


def _shown(seconds: float) -> str:
    """In the largest unit that is not longer."""
    size, unit = next((one for one in UNITS if seconds >= one[0]), UNITS[-1])
    return f"{seconds / size:.2g} {unit}"
