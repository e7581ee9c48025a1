"""What it costs to count elsewhere. Usage: python benchmarks/executors.py

The same run on 2 threads, and on executors of 2 processes that have started and compiled before: rivals are
timed in turn, A B A B …, and the median of the pairwise ratios is printed with its range. And what a chunk
costs beside its steps.
"""

from __future__ import annotations

import time
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import ExitStack
from multiprocessing import get_context

import numpy as np
from run import ratios, show

import specsim
from specsim.core.distributions import synthetic_pair
from specsim.simulation._counting import run
from specsim.simulation._engine import StepTally, make_source

PAIR, GAMMA, STEPS = synthetic_pair("zipf", 1000, 0.8), 5, 10**9
CHUNKS = 4000


def counted(executor: Executor | None, steps: int, threads: int = 2) -> float:
    started = time.perf_counter()
    specsim.simulate(*PAIR, gamma=GAMMA, steps=steps, rng=1, threads=threads, executor=executor)
    return time.perf_counter() - started


def against_threads(name: str, executor: Executor) -> None:
    for _ in range(2):  # both workers compile, and learn how long a span takes
        counted(executor, STEPS // 20)
    threads, other, ratio = ratios(lambda: counted(None, STEPS // 2), lambda: counted(executor, STEPS // 2))
    show(
        f"(g) {name}, 2 workers / 2 threads",
        ratio,
        "≥ 0.9",
        f"{STEPS / 2e6 / np.median(other):.1f} million steps/s of {STEPS / 5e6 / np.median(threads):.1f}",
    )


def chunk_overhead() -> None:
    """The time of chunks of one step each is that of what surrounds the steps."""
    source = make_source(*PAIR, rule="standard", gamma=GAMMA)
    tally = StepTally(GAMMA, source.vocab_size)
    seconds = {}
    for steps in (1, source.chunk):
        taken = []
        for _ in range(5):
            started = time.perf_counter()
            for first in range(CHUNKS if steps == 1 else 20):
                run(source, tally, (1, 2), first * steps, steps, threads=1)
            taken.append((time.perf_counter() - started) / (first + 1))
        seconds[steps] = min(taken)
    one, whole = seconds.values()
    print(
        f"(h) a chunk of {source.chunk:,} steps: {1e3 * whole:.2f} ms, of which {1e3 * one:.2f} ms beside "
        "its steps"
    )


if __name__ == "__main__":
    chunk_overhead()
    for threads in (1, 2):
        seconds = counted(None, STEPS, threads)
        print(
            f"(i) 10^9 steps, V = 1,000, γ = 5, on {threads} thread{'s' * (threads > 1)}: {seconds:.1f} s",
            flush=True,
        )
    with ExitStack() as stack:
        pool = stack.enter_context(ProcessPoolExecutor(2, mp_context=get_context("spawn")))
        against_threads("processes", pool)
    with ExitStack() as stack:
        from distributed import Client, LocalCluster

        cluster = stack.enter_context(LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None))
        client = stack.enter_context(Client(cluster.scheduler_address))
        against_threads("Dask", client.get_executor(pure=False))
