"""Parts of a step on a GPU, alone: what bounds its cost."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks._report import Work
from specsim.core._cuda import cuda
from specsim.core.distributions import alias_table
from specsim.simulation._cuda.counting import BLOCKS, THREADS
from specsim.simulation._cuda.streams import fill_uniforms


def parts_of_a_step(
    weights: NDArray[np.float64], gamma: int, steps: int, multiprocessors: int
) -> dict[str, Work]:
    """The random numbers of so many steps, and their look-ups in the alias table of `weights` and in
    `weights`, each without the other."""
    blocks = BLOCKS * multiprocessors
    tables = cuda.to_device(alias_table(weights)), cuda.to_device(weights)
    out = cuda.to_device(np.zeros(blocks * THREADS))

    def work(kernel: Any, *arguments: Any) -> object:
        kernel[blocks, THREADS](*arguments, gamma, steps, out)
        return out[:1].copy_to_host()  # waits for the kernel

    return {"random numbers": partial(work, random_numbers), "look-ups": partial(work, look_ups, *tables)}


@cuda.jit
def random_numbers(gamma, steps, out):  # type: ignore[no-untyped-def]
    u, found = cuda.local.array(3, np.float64), 0.0
    for s in range(cuda.grid(1), steps, cuda.gridsize(1)):
        for _ in range(-(-gamma // 3) + -(-(gamma + 1) // 3)):  # slots of the draft, and of the verification
            fill_uniforms(np.uint32(1), np.uint32(2), 0, s, u)
            found += u[0] + u[1] + u[2]
            s += steps  # another counter
    out[cuda.grid(1)] = found


@cuda.jit
def look_ups(table, accept, gamma, steps, out):  # type: ignore[no-untyped-def]
    state, found = np.uint64(cuda.grid(1)), 0.0
    for _ in range(cuda.grid(1), steps, cuda.gridsize(1)):
        for _ in range(gamma + 1):  # at places from a linear congruential generator, which costs little
            state = (state * np.uint64(1664525) + np.uint64(1013904223)) & np.uint64(0xFFFFFFFF)
            x = np.int32(state * np.uint64(table.size) >> np.uint64(32))
            found += accept[np.int32(table[x] & 0xFFFFFFFF)]
    out[cuda.grid(1)] = found
