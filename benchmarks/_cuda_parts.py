"""Steps of a fixed pair on a GPU, in all and in parts that bound what they can cost, and on the CPU."""

from __future__ import annotations

from functools import partial
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

import specsim
from benchmarks._report import Work, seconds
from specsim import rules
from specsim.core._cuda import cuda
from specsim.distributions import synthetic_pair
from specsim.models import chain
from specsim.rules._common.integers import columns_of
from specsim.simulation._cuda.counting import BLOCKS, THREADS, DeviceCounter
from specsim.simulation._cuda.steps import fill_words
from specsim.simulation._sources import FixedPairSource

GAMMA = 5


def speeds_of(
    rule: str, vocab_size: int, steps: int, multiprocessors: int, rounds: int
) -> dict[str, NDArray[np.float64]]:
    """Steps a second [rounds] of a rule: in all, of its kernel, of the CPU, and of parts of a step.

    All are timed in turn, after a warm-up; only the first does all `steps`, the others a sixteenth."""
    p, q = synthetic_pair("zipf", vocab_size, 0.8, rng=0)
    counter = DeviceCounter(FixedPairSource(rules.get(rule), p, q, chain(GAMMA)))
    few, one, first = steps // 16, np.uint32(1), count(step=steps // 16)
    kernel = counter._kernel[counter._blocks_for(few), THREADS]

    def run(number: int, device: str) -> object:
        return specsim.simulate(p, q, rule=rule, gamma=GAMMA, steps=number, rng=1, device=device)

    def launch() -> None:
        kernel(counter._tables, one, one, next(first), few, counter._counts)
        cuda.synchronize()

    works: dict[str, tuple[Work, int]] = {"in all": (partial(run, steps, "cuda"), steps)}
    works |= {"kernel alone": (launch, few), "CPU": (partial(run, few, "cpu"), few)}
    works |= {name: (work, few) for name, work in parts_of_a_step(p, few, multiprocessors).items()}
    run(few, "cuda")  # compiles
    for work, _ in [*works.values()][1:]:
        work()
    found = [[number / seconds(work) for work, number in works.values()] for _ in range(rounds)]
    return dict(zip(works, np.array(found).T, strict=True))


def parts_of_a_step(weights: NDArray[np.float64], steps: int, multiprocessors: int) -> dict[str, Work]:
    """Make the two parts of a step in integers works of their own: random numbers, and look-ups.

    Columns are looked up in the alias table of `weights`, and cuts beside them."""
    blocks = BLOCKS * multiprocessors
    columns = columns_of(weights)
    tables = cuda.to_device(columns), cuda.to_device(np.zeros_like(columns))
    out = cuda.to_device(np.zeros(blocks * THREADS))

    def work(kernel: Any, *arguments: Any) -> object:
        kernel[blocks, THREADS](*arguments, GAMMA, steps, out)
        return out[:1].copy_to_host()  # waits for the kernel

    return {"random numbers": partial(work, random_numbers), "look-ups": partial(work, look_ups, *tables)}


@cuda.jit
def random_numbers(gamma, steps, out):  # type: ignore[no-untyped-def]
    words, found = cuda.local.array(4, np.uint32), np.uint64(0)
    for s in range(cuda.grid(1), steps, cuda.gridsize(1)):
        for _ in range(2 * (gamma // 4 + 1)):  # slots of words, and of what follows them
            fill_words(np.uint32(1), np.uint32(2), 4, s, words)
            found ^= np.uint64(words[0] ^ words[1] ^ words[2] ^ words[3])
            s += steps  # another counter
    out[cuda.grid(1)] = found


@cuda.jit
def look_ups(columns, cuts, gamma, steps, out):  # type: ignore[no-untyped-def]
    state, found = np.uint64(cuda.grid(1)), 0
    for _ in range(cuda.grid(1), steps, cuda.gridsize(1)):
        for _ in range(gamma + 1):  # at places from a linear congruential generator, which costs little
            state = (state * np.uint64(1664525) + np.uint64(1013904223)) & np.uint64(0xFFFFFFFF)
            x = np.int32(state * np.uint64(columns.size) >> np.uint64(32))
            found += cuts[x] ^ columns[x]
    out[cuda.grid(1)] = found
