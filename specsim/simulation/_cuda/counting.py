"""Count the steps of a fixed pair on the device.

A launch draws and counts many chunks of steps, a thread one step after the other. Its counts are those of
`specsim.simulation._counting.StepTally`, so files of both can be added and continued."""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np

from specsim import rules
from specsim.core._cuda import DeviceError, cuda, current_device, explained
from specsim.core._streams import Key
from specsim.simulation._counting import Interval, Partial
from specsim.simulation._cuda.steps import STEPS
from specsim.simulation._rows import pieces
from specsim.simulation._sources import FixedPairSource

#: Steps of a launch: enough to amortise it, and few enough for progress and Ctrl-C.
LAUNCH = 2**27
THREADS = 256
#: Blocks for each multiprocessor: as many threads as one can hold.
BLOCKS = 8
#: Threads that add to the same count wait for each other, so blocks add to different copies of the counts, as
#: many as fit in these bytes.
COPIES_BYTES = 2**26
CPU = "leave device out, to count on the CPU"


@cache
def counting_kernel(make_step: Any, gamma: int) -> Any:
    """The kernel that counts steps: counts[copies, width] += lengths [γ+1] and tokens [2, V+1], in a row."""
    step, most = make_step(gamma), gamma + 1

    @cuda.jit
    def count(tables, k0, k1, first, steps, counts):
        tokens = cuda.local.array(most, np.int32)
        mine = counts[cuda.blockIdx.x % counts.shape[0]]
        columns = (mine.size - most) // 2
        for s in range(cuda.grid(1), steps, cuda.gridsize(1)):
            n = step(tables, k0, k1, first + s, tokens)
            cuda.atomic.add(mine, n, 1)
            for i in range(n + 1):
                cuda.atomic.add(mine, most + (i & 1) * columns + 1 + tokens[i], 1)

    return count


@cuda.jit
def add_copies(counts, total):
    """Move the sum of counts[copies, width] to total[width]."""
    for j in range(cuda.grid(1), total.size, cuda.gridsize(1)):
        found = 0
        for c in range(counts.shape[0]):
            found += counts[c, j]
            counts[c, j] = 0
        total[j] = found


class DeviceCounter:
    """Counts the steps of `source` on the current GPU, called `name`. Raises ValueError if it cannot."""

    def __init__(self, source: FixedPairSource):
        kernel, vocab_size, gamma = source.rule.fixed_pair.kernel, source.vocab_size, source.tree.size
        if kernel not in STEPS:
            having = [name for name in rules.names() if rules.get(name).fixed_pair.kernel in STEPS]
            raise ValueError(
                f"device: 'cuda' has no code for the rule {source.rule.name}, but for {', '.join(having)}; "
                f"{CPU}"
            )
        self.name, multiprocessors, free = current_device()
        make_step, tables_of = STEPS[kernel]
        tables = tables_of(source.tables)
        self._lengths, self._blocks = gamma + 1, BLOCKS * multiprocessors
        width = gamma + 1 + 2 * (vocab_size + 1)
        copies = min(self._blocks, max(1, COPIES_BYTES // (8 * width)))
        local = 20 * (gamma + 3)  # at most: random numbers and tokens
        needed = sum(table.nbytes for table in tables) + 8 * width * (copies + 1)
        needed += local * THREADS * self._blocks
        if needed > free:
            takes = f"{needed / 2**20:,.0f} MiB for V = {vocab_size:,} and γ = {gamma:,}"
            raise DeviceError(
                f"device: tables and counts take {takes}, and the {self.name} has {free / 2**20:,.0f} MiB "
                f"free; end what else uses it, or {CPU}"
            )
        with explained():
            self._tables = tuple(cuda.to_device(table) for table in tables)
            self._counts = cuda.to_device(np.zeros((copies, width), np.int64))
            self._total = cuda.device_array(width, np.int64)
        self._kernel = counting_kernel(make_step, gamma)
        self._launch((0, 0), 0, 0)  # compiles, so that what is missing is noticed before the run begins

    def count(self, key: Key, intervals: Sequence[Interval]) -> Iterator[Partial]:
        """The counts of each launch over the steps in `intervals`. Raises DeviceError if the GPU fails."""
        for start, end in intervals:
            for first, steps in pieces(start, end - start, LAUNCH):
                # as `StepTally` has them: with the padding, which its entry 0 of the tokens counts
                lengths, tokens = np.split(self._launch(key, first, steps), [self._lengths])
                shorter = np.cumsum(lengths) - lengths  # [i]: steps that emit no token at i
                tokens = tokens.reshape(2, -1)
                tokens[0, 0] = shorter.sum()
                yield Partial({"lengths": lengths, "tokens": tokens}, ((first, first + steps),))

    def _launch(self, key: Key, first: int, steps: int) -> np.ndarray:
        """The counts of these steps, as `add_copies` gives them."""
        k0, k1 = (np.uint32(word) for word in key)
        with explained():
            self._kernel[self._blocks_for(steps), THREADS](self._tables, k0, k1, first, steps, self._counts)
            add_copies[self._blocks_for(self._total.size), THREADS](self._counts, self._total)
            found: np.ndarray = self._total.copy_to_host()
        return found

    def _blocks_for(self, items: int) -> int:
        return max(1, min(self._blocks, -(-items // THREADS)))
