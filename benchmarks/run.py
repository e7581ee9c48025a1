"""Benchmarks, each a ratio within this run. Usage: python benchmarks/run.py

Rivals are timed in turn, A B A B …, and the median of the pairwise ratios is printed with its range, so that
a machine that is shared, or slows down, does both of them the same harm.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numba
import numpy as np
from numpy_baseline import BATCH
from numpy_baseline import simulate as simulate_with_numpy

import specsim
from specsim.core._streams import Purpose, fill_uniforms
from specsim.core.distributions import synthetic_pair
from specsim.simulation._sources import FIXED_PAIR_BATCH
from specsim.traces import open_trace, summarise, writer

GAMMA = 5
SIZES = (32, 1_000, 32_000, 128_256)
ROUNDS = 7
NUMPY_STEPS = 4 * BATCH


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def ratios(
    slow: Callable[[], object], fast: Callable[[], object]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Seconds of `slow`, of `fast`, and their pairwise ratios, over `ROUNDS` rounds after a warm-up."""
    slow(), fast()
    pairs = np.array([(seconds(slow), seconds(fast)) for _ in range(ROUNDS)])
    return pairs[:, 0], pairs[:, 1], pairs[:, 0] / pairs[:, 1]


def show(name: str, values: np.ndarray, wanted: str, detail: str = "") -> None:
    low, middle, high = values.min(), np.median(values), values.max()
    print(f"{name:<46} {middle:7.2f}  ({low:.2f} – {high:.2f})   wanted {wanted:<9} {detail}", flush=True)


def engine(p: np.ndarray, q: np.ndarray, steps: int, threads: int) -> Callable[[], object]:
    return lambda: specsim.simulate(p, q, gamma=GAMMA, steps=steps, rng=1, threads=threads)


def against_numpy() -> None:
    for size in SIZES:
        p, q = synthetic_pair("zipf", size, 0.8)
        steps = 2**23
        slow, fast, _ = ratios(
            lambda p=p, q=q: simulate_with_numpy(p, q, GAMMA, NUMPY_STEPS, 1), engine(p, q, steps, 2)
        )
        rate = steps / fast
        show(
            f"(a) engine, 2 threads / NumPy, V = {size:,}",
            rate / (NUMPY_STEPS / slow),
            "≥ 12" if size == 32 else "≥ 20",
            f"{np.median(rate) / 1e6:.1f} million steps/s",
        )


def random_numbers() -> None:
    for size in SIZES:
        p, q = synthetic_pair("zipf", size, 0.8)
        steps, batch = 2**21, FIXED_PAIR_BATCH
        out = np.empty((GAMMA + 1, batch))

        def fill(steps: int = steps, batch: int = batch, out: np.ndarray = out) -> None:
            for first in range(0, steps, batch):
                fill_uniforms(1, 2, int(Purpose.DRAFT), first, out)
                fill_uniforms(1, 2, int(Purpose.VERIFY), first, out)

        _, _, share = ratios(fill, engine(p, q, steps, 1))
        show(f"(b) random numbers / step, V = {size:,}", share, "≤ 0.25")


def large_vocabulary() -> None:
    steps = 2**24  # long enough for the tables, which are made once, not to count
    large, small = (engine(*synthetic_pair("zipf", size, 0.8), steps, 2) for size in (128_256, 1_000))
    show("(c) V = 128,256 / V = 1,000, time per step", ratios(large, small)[2], "≤ 2")


def machine_scaling() -> float:
    """What two threads that share nothing gain over one: the most that (d) can reach on this machine."""
    outs = [np.empty((3, 16384)) for _ in range(2)]

    def work(out: np.ndarray) -> None:
        for first in range(0, 2**24, 16384):
            fill_uniforms(1, 2, 0, first, out)

    def both() -> None:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(work, outs))

    return 2.0 * float(np.median(ratios(lambda: work(outs[0]), both)[2]))


def threads() -> None:
    ceiling = f"of {machine_scaling():.2f} for two threads that share nothing"
    for size in SIZES[:3]:
        pair = synthetic_pair("zipf", size, 0.8)
        one, two = engine(*pair, 2**23, 1), engine(*pair, 2**23, 2)
        show(f"(d) 2 threads / 1 thread, V = {size:,}", ratios(one, two)[2], "≥ 1.8", ceiling)


def trace_bandwidth() -> None:
    for size, dtype in ((256, "float32"), *((32_000, name) for name in ("float32", "float16", "bfloat16"))):
        with tempfile.TemporaryDirectory() as folder:
            trace = open_trace(_write_trace(Path(folder) / "trace", size, dtype, 2**28))
            arrays = [array for shard in trace.shards for array in (shard.columns.p, shard.columns.q)]
            words = [array.reshape(-1).view(np.uint64) for array in arrays]
            plain, read, _ = ratios(
                lambda words=words: [w.sum() for w in words], lambda trace=trace: summarise(trace)
            )
            total = sum(w.nbytes for w in words)
            show(
                f"(e) trace alpha / plain read, V = {size:,}, {dtype}",
                plain / read,
                "≥ 0.8" if dtype == "float32" else "≥ 0.6",
                f"{total / np.median(read) / 1e9:.1f} GB/s of {total / np.median(plain) / 1e9:.1f}",
            )


def _write_trace(path: Path, vocab_size: int, dtype: str, size: int) -> Path:
    """A trace of about `size` bytes."""
    p, q = synthetic_pair("zipf", vocab_size, 0.8)
    p_rows, q_rows = np.tile(p, (GAMMA + 1, 1)), np.tile(q, (GAMMA + 1, 1))
    steps = size // ((8 if dtype == "float32" else 4) * vocab_size * (GAMMA + 1))
    with writer(path, vocab_size=vocab_size, gamma=GAMMA, dtype=dtype) as log:
        for step in range(steps):
            log.append(step, [0] * GAMMA, 2, p_rows, q_rows)
    return path


if __name__ == "__main__":
    print(
        f"{os.cpu_count()} cores, numpy {np.__version__}, numba {numba.__version__}; medians of {ROUNDS} "
        "rounds\n"
    )
    against_numpy()
    random_numbers()
    large_vocabulary()
    threads()
    trace_bandwidth()
