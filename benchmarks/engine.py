"""The engine of a fixed pair: beside NumPy, JAX, and the limit that its parts set."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from time import process_time

import numpy as np

import specsim
from benchmarks._report import Report, in_turn
from benchmarks.numpy_baseline import BATCH as NUMPY_BATCH
from benchmarks.numpy_baseline import simulate as simulate_with_numpy
from specsim.core._streams import fill_uniforms, fill_words
from specsim.distributions import synthetic_pair
from specsim.models import chain
from specsim.rules import get, kernel
from specsim.rules._common.integers import BATCH, word_count

GAMMA = 5
SIZES = (32, 1_000, 32_000, 128_256)


def measure(report: Report) -> None:
    for size in SIZES:
        against_programs(report, size)
    for size in SIZES:
        against_parts(report, size)
    steps = 2**25  # long enough for the tables, which are made once, not to count
    large, small = (engine(*synthetic_pair("zipf", size, 0.8, rng=0), steps, 2) for size in (128_256, 1_000))
    one, other = in_turn(large, small)
    report.add("time per step at V = 128,256 / at V = 1,000", one / other, "≤ 2")
    threads(report)


def engine(p: np.ndarray, q: np.ndarray, steps: int, threads: int) -> Callable[[], object]:
    return lambda: specsim.simulate(p, q, gamma=GAMMA, steps=steps, rng=1, threads=threads)


def against_programs(report: Report, size: int) -> None:
    """In processor time, so that other work on the machine matters little: two cores are twice one."""
    p, q = synthetic_pair("zipf", size, 0.8, rng=0)
    ours, steps = engine(p, q, 2**25, 2), 2**25
    for name, (rival, rival_steps, wanted) in rivals(p, q).items():
        slow, fast = in_turn(rival, ours, clock=process_time)
        rate, rival_rate = 2 * steps / fast, rival_steps / slow
        report.add(
            f"steps/s: engine, 2 cores / {name}, V = {size:,}",
            rate / rival_rate,
            wanted,
            f"{np.median(rate) / 1e6:.1f} and {np.median(rival_rate) / 1e6:.2f} million steps/s",
        )


def rivals(p: np.ndarray, q: np.ndarray) -> dict[str, tuple[Callable[[], object], int, str]]:
    """By name: the program, its steps, and the ratio that is wanted."""
    steps = 4 * NUMPY_BATCH
    found = {"NumPy": (lambda: simulate_with_numpy(p, q, GAMMA, steps, 1), steps, "≥ 60")}
    if find_spec("jax") is not None:
        from benchmarks.jax_baseline import BATCH, simulation

        run = simulation(p, q, GAMMA)
        found["jitted JAX"] = (lambda: run(64), 64 * BATCH, "≥ 12" if p.size <= 32_000 else "≥ 10")
    return found


@kernel
def draw_words(steps, words):  # type: ignore[no-untyped-def]
    for first in range(0, steps, words.shape[1]):
        fill_words(1, 2, 4, first, words)


@kernel
def draw_and_count(entries, last, steps, words, emitted):  # type: ignore[no-untyped-def]
    """What a step cannot do without: words, and a look-up and a count for each draft and for the last token.
    That one is drawn from one of two tables: here a bit of its word says from which."""
    mask, rows = np.uint32(last.shape[1] - 1), emitted.shape[0] - 1
    found, both, width = np.empty(words.shape[1], np.uint32), last.reshape(-1), np.uint32(last.shape[1])
    for first in range(0, steps, words.shape[1]):
        fill_words(1, 2, 4, first, words)
        for i in range(GAMMA + 1):
            draws = words[i]
            if i < GAMMA:
                for s in range(found.size):
                    found[s] = np.uint32(entries[0, np.uint64(draws[s] & mask)])
            else:
                for s in range(found.size):
                    found[s] = (draws[s] >> np.uint32(31)) * width + (draws[s] & mask)
                for s in range(found.size):
                    found[s] = both[np.uint64(found[s])]
            for s in range(found.size):
                found[s] = min(draws[s], found[s]) & mask
            for s in range(0, found.size - 7, 8):
                for j in range(8):
                    emitted[j & rows, found[s + j]] += 1


def against_parts(report: Report, size: int) -> None:
    """A program that draws the same words, looks up and counts, and does nothing else, beside the whole."""
    p, q = synthetic_pair("zipf", size, 0.8, rng=0)
    steps = 2**26  # long enough for the tables, which are made once, not to count
    entries, last, *_ = get("standard").fixed_pair.tables(p, q, chain(GAMMA))
    words = np.empty((word_count(GAMMA), BATCH), np.uint32)
    emitted = np.zeros((8 if size <= 4096 else 1, last.shape[1]), np.int32)
    whole = engine(p, q, steps, 1)

    def parts() -> None:
        draw_and_count(entries, last, steps, words, emitted)

    limit, time = in_turn(parts, whole, 15, clock=process_time)
    alone, _ = in_turn(lambda: draw_words(steps, words), whole, clock=process_time)
    detail = (
        f"{1e9 * np.median(time) / steps:.1f} ns a step; parts {1e9 * np.median(limit) / steps:.1f}, "
        f"of these words {1e9 * np.median(alone) / steps:.1f}"
    )
    name = f"time of a step / of its words, look-ups and counts alone, V = {size:,}"
    report.add(name, time / limit, "≤ 1.15", detail)


def threads(report: Report) -> None:
    def work(out: np.ndarray) -> None:
        for first in range(0, 2**24, 16384):
            fill_uniforms(1, 2, 0, first, out)

    outs = [np.empty((3, 16384)) for _ in range(2)]

    def both() -> None:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(work, outs))

    alone, together = in_turn(lambda: work(outs[0]), both)
    ceiling = f"of {2.0 * float(np.median(alone / together)):.2f} for two threads that share nothing"
    for size in SIZES[:3]:
        pair = synthetic_pair("zipf", size, 0.8, rng=0)
        one, two = in_turn(engine(*pair, 2**23, 1), engine(*pair, 2**23, 2))
        report.add(f"steps/s: 2 threads / 1 thread, V = {size:,}", one / two, "≥ 1.8", ceiling)
