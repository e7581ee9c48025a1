"""What it costs to count elsewhere: the same run on 2 threads, and on executors of 2 processes that have
started and compiled before. And what a chunk costs beside its steps.

Weak scaling of an audit of a slow verifier: the steps grow with the workers, so that the time should not. It
is measured with a verifier that sleeps, so that workers need few cores, and computed for up to 1,000 workers
by the same scheduling in virtual time, in which a row takes a constant time and the parent none."""

from __future__ import annotations

import time
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from multiprocessing import get_context

import numpy as np

import specsim
from benchmarks._report import Report, in_turn, seconds
from benchmarks._sleeping import PACE
from benchmarks._virtual import VirtualExecutor
from specsim.auditing._checks.subjects import Subject, open_subject
from specsim.auditing._schedule import CaseRun, Schedule
from specsim.distributions import synthetic_pair
from specsim.simulation._counting import StepTally, run
from specsim.simulation._executors import Workers
from specsim.simulation._sources import make_source

PAIR, GAMMA, STEPS = synthetic_pair("zipf", 1000, 0.8, rng=0), 5, 10**9
CHUNKS = 4000
#: The sleeping verifier, and the cases and the numbers of workers that it is measured with, each with so many
#: seconds of work.
SLEEPS, TIMEOUT, SLEEPING_SECONDS = "benchmarks._sleeping:verify", 60.0, 10.0
CASES, FEW = ("two-point", "zeros", "own rows", "Markov chain"), (1, 2, 4, 8, 16)
#: The same in virtual time, with all cases; seconds of a row, and of work for each worker.
MANY, PACES = (16, 100, 1000), ((5e-5, 60.0), (5e-3, 1200.0))


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


def audited(subject: Subject, executor: Executor, cases: tuple[str, ...], rows: float) -> None:
    """Count some cases of an audit on the workers of `executor`, of `rows` steps together."""
    plans = [plan for plan in subject.plans("smoke") if plan.case.name in cases]
    steps = int(rows / len(plans)) // 8 * 8
    subject = replace(subject, workers=Workers("workers", executor))
    schedule = Schedule(
        subject, [CaseRun(replace(plan, steps=steps), 1, 1e-12, extends=False) for plan in plans]
    )
    schedule.to_the_end()
    for counted_run in schedule.begun:
        assert counted_run.total.steps == steps, counted_run.total.failures


def weak_scaling(report: Report, subject: Subject) -> None:
    taken = {}
    for workers in FEW:
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
            list(pool.map(time.sleep, [2.0] * workers))  # all of them have started
            audited(subject, pool, CASES, workers * 1.0 / PACE)  # they compile
            taken[workers] = seconds(lambda: audited(subject, pool, CASES, workers * SLEEPING_SECONDS / PACE))  # noqa: B023
        name = f"audit of a verifier that sleeps, weak scaling, {workers} workers"
        report.add(name, taken[1] / taken[workers], "≥ 0.9", f"{taken[workers]:.1f} s")


def virtual_scaling(report: Report, subject: Subject) -> None:
    """The share of the workers' time that is work, and the parent's own time for a span."""
    cases = tuple(case.name for case in subject.cases)
    for pace, share in PACES:
        for workers in MANY:
            executor = VirtualExecutor(workers, lambda asked: asked.steps * pace)  # noqa: B023
            with executor.in_its_time():
                own = seconds(lambda: audited(subject, executor, cases, workers * share / pace))  # noqa: B023
            name = f"computed: {1e3 * pace:g} ms a row, weak scaling, {workers:,} workers"
            detail = f"{executor.spans:,} spans, {1e3 * own / executor.spans:.2f} ms of the parent for each"
            report.add(name, executor.busy / (workers * executor.now), "", detail)


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
    with open_subject(SLEEPS, 1, TIMEOUT) as subject:
        virtual_scaling(report, subject)
        weak_scaling(report, subject)
