"""What it costs to count elsewhere: the same run on 2 threads, and on executors of 2 processes that have
started and compiled before. And what a chunk costs beside its steps."""

from __future__ import annotations

import time
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import ExitStack
from multiprocessing import get_context

import numpy as np

import specsim
from benchmarks._report import Report, in_turn
from specsim.core.distributions import synthetic_pair
from specsim.simulation._counting import run
from specsim.simulation._engine import StepTally, make_source

PAIR, GAMMA, STEPS = synthetic_pair("zipf", 1000, 0.8), 5, 10**9
CHUNKS = 4000


def counted(executor: Executor | None, steps: int, threads: int = 2) -> float:
    started = time.perf_counter()
    specsim.simulate(*PAIR, gamma=GAMMA, steps=steps, rng=1, threads=threads, executor=executor)
    return time.perf_counter() - started


def against_threads(report: Report, name: str, executor: Executor) -> None:
    for _ in range(2):  # both workers compile, and learn how long a span takes
        counted(executor, STEPS // 20)
    threads, other = in_turn(lambda: counted(None, STEPS // 2), lambda: counted(executor, STEPS // 2))
    rates = f"{STEPS / 2e6 / np.median(other):.1f} and {STEPS / 2e6 / np.median(threads):.1f} million steps/s"
    report.add(f"steps/s: {name}, 2 workers / 2 threads", threads / other, "≥ 0.9", rates)


def chunk_overhead(report: Report) -> None:
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
    name = f"share of a chunk of {source.chunk:,} steps that is not steps"
    report.add(name, one / whole, "≤ 0.1", f"{1e3 * one:.2f} of {1e3 * whole:.2f} ms")


def measure(report: Report) -> None:
    chunk_overhead(report)
    one, two = counted(None, STEPS, 1), counted(None, STEPS, 2)
    report.add("time of 10⁹ steps: 1 thread / 2 threads", one / two, "≥ 1.8", f"{one:.1f} and {two:.1f} s")
    with ExitStack() as stack:
        pool = stack.enter_context(ProcessPoolExecutor(2, mp_context=get_context("spawn")))
        against_threads(report, "processes", pool)
    with ExitStack() as stack:
        from distributed import Client, LocalCluster

        cluster = stack.enter_context(LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None))
        client = stack.enter_context(Client(cluster.scheduler_address))
        against_threads(report, "Dask", client.get_executor(pure=False))
