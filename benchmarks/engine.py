"""The engine of a fixed pair: beside NumPy, JAX, and the limit that its parts set."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec

import numpy as np

import specsim
from benchmarks._report import Report, in_turn
from benchmarks.numpy_baseline import BATCH as NUMPY_BATCH
from benchmarks.numpy_baseline import simulate as simulate_with_numpy
from specsim.core._streams import Purpose, fill_uniforms, uniforms_buffer
from specsim.core.distributions import alias_buffers, alias_draws
from specsim.distributions import synthetic_pair
from specsim.models import chain
from specsim.rules import get, kernel
from specsim.simulation._sources import FIXED_PAIR_BATCH

GAMMA = 5
SIZES = (32, 1_000, 32_000, 128_256)


def measure(report: Report) -> None:
    for size in SIZES:
        against_programs(report, size)
    for size in SIZES:
        against_parts(report, size)
    steps = 2**24  # long enough for the tables, which are made once, not to count
    large, small = (engine(*synthetic_pair("zipf", size, 0.8, rng=0), steps, 2) for size in (128_256, 1_000))
    one, other = in_turn(large, small)
    report.add("time per step at V = 128,256 / at V = 1,000", one / other, "≤ 2")
    threads(report)


def engine(p: np.ndarray, q: np.ndarray, steps: int, threads: int) -> Callable[[], object]:
    return lambda: specsim.simulate(p, q, gamma=GAMMA, steps=steps, rng=1, threads=threads)


def against_programs(report: Report, size: int) -> None:
    p, q = synthetic_pair("zipf", size, 0.8, rng=0)
    ours, steps = engine(p, q, 2**23, 2), 2**23
    for name, (rival, rival_steps, wanted) in rivals(p, q).items():
        slow, fast = in_turn(rival, ours)
        rate, rival_rate = steps / fast, rival_steps / slow
        report.add(
            f"steps/s: engine, 2 threads / {name}, V = {size:,}",
            rate / rival_rate,
            wanted if size >= 1000 else "",
            f"{np.median(rate) / 1e6:.1f} and {np.median(rival_rate) / 1e6:.2f} million steps/s",
        )


def rivals(p: np.ndarray, q: np.ndarray) -> dict[str, tuple[Callable[[], object], int, str]]:
    """By name: the program, its steps, and the ratio that is wanted from V = 1,000 on."""
    steps = 4 * NUMPY_BATCH
    found = {"NumPy": (lambda: simulate_with_numpy(p, q, GAMMA, steps, 1), steps, "≥ 60")}
    if find_spec("jax") is not None:
        from benchmarks.jax_baseline import BATCH, simulation

        run = simulation(p, q, GAMMA)
        found["jitted JAX"] = (lambda: run(64), 64 * BATCH, "≥ 12")
    return found


@kernel
def look_up_and_count(draft, last, accept, draft_uniforms, verify_uniforms, emitted):  # type: ignore[no-untyped-def]
    """The look-ups that a step cannot do without: of each drafted token and the chance to accept it, of the
    last token, and of the count of each token."""
    start, coin, drawn = alias_buffers(draft_uniforms.shape[1])
    passed = np.empty(drawn.size, np.bool_)
    for i in range(GAMMA):
        alias_draws(draft, start, accept.shape[1], draft_uniforms[i], coin, drawn)
        for s in range(drawn.size):
            passed[s] = verify_uniforms[i, s] < accept[0, np.uint32(drawn[s])]
        for s in range(drawn.size):
            emitted[np.uint32(drawn[s])] += 1
    for s in range(drawn.size):
        start[s] = accept.shape[1] * np.uint32(passed[s])
    alias_draws(last, start, accept.shape[1], verify_uniforms[GAMMA], coin, drawn)
    for s in range(drawn.size):
        emitted[np.uint32(drawn[s])] += 1


def against_parts(report: Report, size: int) -> None:
    """A program that draws the same uniforms, does the look-ups, and nothing else, beside the whole."""
    p, q = synthetic_pair("zipf", size, 0.8, rng=0)
    steps = 2**23  # long enough for the tables, which are made once, not to count
    tables = get("standard").fixed_pair.tables(p, q, chain(GAMMA))
    draft, verify = uniforms_buffer(GAMMA, FIXED_PAIR_BATCH), uniforms_buffer(GAMMA + 1, FIXED_PAIR_BATCH)
    emitted = np.zeros(size, np.int32)

    def random_numbers(first: int) -> None:
        fill_uniforms(1, 2, int(Purpose.DRAFT), first, draft)
        fill_uniforms(1, 2, int(Purpose.VERIFY), first, verify)

    def parts() -> None:
        for first in range(0, steps, FIXED_PAIR_BATCH):
            random_numbers(first)
            look_up_and_count(*tables, draft, verify, emitted)

    def random_numbers_alone() -> None:
        for first in range(0, steps, FIXED_PAIR_BATCH):
            random_numbers(first)

    whole = engine(p, q, steps, 1)
    limit, time = in_turn(parts, whole)
    alone, _ = in_turn(random_numbers_alone, whole)
    detail = (
        f"{1e9 * np.median(time) / steps:.1f} ns a step; parts {1e9 * np.median(limit) / steps:.1f}, "
        f"of these uniforms {1e9 * np.median(alone) / steps:.1f}"
    )
    name = f"time of a step / of its uniforms and look-ups alone, V = {size:,}"
    report.add(name, time / limit, "≤ 1.3", detail)


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
