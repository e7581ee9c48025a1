"""Count the steps of a fixed pair on the device.

A launch draws and counts many chunks of steps, a thread one step after the other. Its counts are those of
`specsim.simulation._engine.StepTally`, so files of both can be added and continued.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np

from specsim import rules
from specsim.core._cuda import NoDeviceError, cuda, open_device
from specsim.core._streams import PER_SLOT, Key, Purpose
from specsim.simulation._counting import Interval, Partial
from specsim.simulation._cuda.steps import STEPS
from specsim.simulation._cuda.streams import fill_uniforms
from specsim.simulation._rows import pieces
from specsim.simulation._sources import FixedPairSource

#: Steps of a launch: enough to amortise it, and few enough for progress and Ctrl-C.
LAUNCH = 2**25
THREADS = 256
#: Blocks for each multiprocessor: as many threads as one can hold.
BLOCKS = 8
#: Threads that add to the same count wait for each other, so blocks add to different copies of the counts, as
#: many as fit in the cache.
COPIES_BYTES = 2**24
DRAFT, VERIFY = int(Purpose.DRAFT), int(Purpose.VERIFY)


@cache
def counting_kernel(step: Any, gamma: int) -> Any:
    """The kernel that counts steps: counts[copies, width] += lengths [γ+1] and tokens [2, V+1], in a row."""
    drafted, verified, most = _whole_slots(gamma), _whole_slots(gamma + 1), gamma + 1

    @cuda.jit
    def count(tables, k0, k1, first, steps, counts):  # type: ignore[no-untyped-def]
        draft_uniforms = cuda.local.array(drafted, np.float64)
        verify_uniforms = cuda.local.array(verified, np.float64)
        tokens = cuda.local.array(most, np.int32)
        mine = counts[cuda.blockIdx.x % counts.shape[0]]
        columns = (mine.size - most) // 2
        for s in range(cuda.grid(1), steps, cuda.gridsize(1)):
            fill_uniforms(k0, k1, DRAFT, first + s, draft_uniforms)
            fill_uniforms(k0, k1, VERIFY, first + s, verify_uniforms)
            n = step(tables, draft_uniforms, verify_uniforms, tokens)
            cuda.atomic.add(mine, n, 1)
            for i in range(n + 1):
                cuda.atomic.add(mine, most + (i & 1) * columns + 1 + tokens[i], 1)

    return count


@cuda.jit
def add_copies(counts, total):  # type: ignore[no-untyped-def]
    """Move the sum of counts[copies, width] to total[width]."""
    for j in range(cuda.grid(1), total.size, cuda.gridsize(1)):
        found = 0
        for c in range(counts.shape[0]):
            found += counts[c, j]
            counts[c, j] = 0
        total[j] = found


class DeviceCounter:
    """Counts the steps of `source` on the current GPU, whose name is `name`.

    Raises ValueError if there is none, if it has too little memory, or if it has no code for the rule."""

    def __init__(self, source: FixedPairSource):
        self._source = source
        kernel = source.rule.fixed_pair.kernel
        if kernel not in STEPS:
            having = [name for name in rules.names() if rules.get(name).fixed_pair.kernel in STEPS]
            raise ValueError(
                f"device: 'cuda' has no code for the rule {source.rule.name}, but for {', '.join(having)}; "
                "leave device out, to count on the CPU"
            )
        context = open_device()
        device = context.device
        # numba's simulator has neither
        name = getattr(device, "name", b"simulated GPU")
        self.name = name.decode() if isinstance(name, bytes) else str(name)
        multiprocessors = getattr(device, "MULTIPROCESSOR_COUNT", 1)
        step, tables = STEPS[kernel]
        self._tables = tables(source.tables)
        self._kernel = counting_kernel(step, source.tree.size)
        self._blocks = BLOCKS * multiprocessors
        width = source.tree.size + 1 + 2 * (source.vocab_size + 1)
        copies = min(self._blocks, max(1, COPIES_BYTES // (8 * width)))
        self._shape = copies, width
        self._check_memory(context.get_memory_info().free)

    def _check_memory(self, free: float) -> None:
        copies, width = self._shape
        local = 8 * (_whole_slots(self._source.tree.size) + _whole_slots(self._source.tree.size + 1)) + 4 * (
            self._source.tree.size + 1
        )
        needed = sum(table.nbytes for table in self._tables) + 8 * (copies + 1) * width
        needed += local * self._blocks * THREADS
        if needed > free:
            raise NoDeviceError(
                f"device: tables and counts take {needed / 2**20:,.0f} MiB for V = "
                f"{self._source.vocab_size:,}, and {free / 2**20:,.0f} MiB are free on the {self.name}; end "
                "what else uses it, or leave device out, to count on the CPU"
            )

    def count(self, key: Key, intervals: Sequence[Interval]) -> Iterator[Partial]:
        """The counts of each launch over the steps in `intervals`."""
        tables = tuple(cuda.to_device(table) for table in self._tables)
        counts, total = cuda.to_device(np.zeros(self._shape, np.int64)), cuda.device_array(self._shape[1], np.int64)
        k0, k1 = (np.uint32(word) for word in key)
        for start, end in intervals:
            for first, steps in pieces(start, end - start, LAUNCH):
                blocks = min(self._blocks, -(-steps // THREADS))
                self._kernel[blocks, THREADS](tables, k0, k1, first, steps, counts)
                add_copies[min(self._blocks, -(-self._shape[1] // THREADS)), THREADS](counts, total)
                yield Partial(self._as_tally(total.copy_to_host()), ((first, first + steps),))

    def _as_tally(self, total: np.ndarray) -> dict[str, np.ndarray]:
        """The counts as `StepTally` has them: with the padding, which its entry 0 of the tokens counts."""
        size = self._source.tree.size + 1
        lengths, tokens = total[:size], total[size:].reshape(2, -1)
        shorter = np.cumsum(lengths) - lengths  # [i]: steps that emit no token at i
        tokens[0, 0], tokens[1, 0] = shorter[::2].sum(), shorter[1::2].sum()
        return {"lengths": lengths, "tokens": tokens}


def _whole_slots(count: int) -> int:
    """The size of an array for so many uniforms."""
    return -(-count // PER_SLOT) * PER_SLOT
