"""Verify rows on the device, with the row kernel of any rule, and the tokens of the CPU.

The row kernel itself is compiled for the device; a thread verifies some of the steps of a batch, one after
the other, with the uniforms of their numbers. Readers make the rows on the CPU, and only tokens come back."""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np

from specsim.core._cuda import DeviceError, cuda, current_device, device_function, explained, heap, inexact
from specsim.core._kernels import Kernel
from specsim.core._streams import Key, Purpose
from specsim.core._types import Ints, TokenArray
from specsim.rules import Rule
from specsim.simulation._counting import Interval, Partial, Tally, count_chunks
from specsim.simulation._cuda.counting import CPU
from specsim.simulation._cuda.steps import fill_uniforms
from specsim.simulation._rows import Rows
from specsim.simulation._sources import RowSource

#: Bytes of the rows of a batch at most: they are in the memory of the CPU too.
BATCH_BYTES = 2**30
#: Bytes of the arrays that rules allocate on the device, at most.
HEAP_BYTES = 2**35
#: Threads of a launch at most, and of a block: one warp, since threads share nothing.
THREADS, BLOCK = 2**15, 32
VERIFY = int(Purpose.VERIFY)


@cache
def verifying_kernel(rows: Kernel) -> Any:
    """The kernel that verifies steps from `step` on, with `count` uniforms each, which fill `uniforms`."""
    verify_rows = device_function(rows)

    @cuda.jit
    def verify(k0, k1, step, count, parents, draft_tokens, p, q, uniforms, values, tokens, accepted):
        first, threads = cuda.grid(1), cuda.gridsize(1)
        if first < accepted.size:
            for s in range(first, accepted.size, threads):
                fill_uniforms(k0, k1, VERIFY, step + s, uniforms[:, s])
            verify_rows(
                parents[first::threads],
                draft_tokens[first::threads],
                p[first::threads],
                q[first::threads],
                uniforms[:count, first::threads],
                values,
                tokens[:, first::threads],
                accepted[first::threads],
            )

    return verify


class DeviceRowCounter:
    """Counts the steps of `source`, verified by `rule` on the current GPU. Raises ValueError if it cannot."""

    def __init__(self, source: RowSource, rule: Rule, tally: Tally):
        if (reason := inexact(rule.rows)) is not None:
            raise ValueError(
                f"device: the rule {rule.name} needs {reason}, whose last bits differ on a GPU and a CPU, "
                f"so counts could differ; {CPU}"
            )
        self.name, _, free = current_device()
        tree, vocab_size = source.tree, source.vocab_size
        row_bytes = 8 * vocab_size * (2 * tree.size + 2)
        self._uniforms = rule.uniforms(tree, vocab_size)
        self._rule, self._tally, share = rule, tally, free / 4
        with explained():
            # no less than what a thread allocates: some rows, at most two for each place of a path and six
            # more, and numbers of nodes; twice, for what an allocator loses
            each = 16 * ((2 * tree.depth + 8) * vocab_size + (tree.size + 8) ** 2 + 1024)
            self._threads = min(THREADS, heap(int(min(share, HEAP_BYTES))) // each)
        if row_bytes + 8 * self._uniforms > share or self._threads < 1:
            needs = f"{row_bytes / 2**20:,.0f} MiB of rows for V = {vocab_size:,}, {tree.size:,} drafts"
            raise DeviceError(
                f"device: a step has {needs}, and the {self.name} has {free / 2**20:,.0f} MiB free, a "
                f"quarter for rows and a quarter for the rule; end what else uses it, or {CPU}"
            )
        self._source = RowSource(source.reader, self.verify, int(min(BATCH_BYTES, share)))
        self._depth, self._kernel = tree.depth, verifying_kernel(rule.rows)
        next(iter(self._source.batches((0, 0), 0, 1)))  # what is missing is noticed before the run begins

    def count(self, key: Key, intervals: Sequence[Interval]) -> Iterator[Partial]:
        """The counts of each chunk of the steps in `intervals`. Raises DeviceError if the GPU fails."""
        return count_chunks(self._source, self._tally, key, intervals, threads=1)

    def verify(self, rows: Rows, key: Key, first: int) -> tuple[TokenArray, Ints]:
        """The tokens of `rows` from step `first` on, as a `RowVerifier`."""
        steps = len(rows.p)
        given = (rows.parents, rows.draft_tokens, rows.p, rows.q)
        k0, k1 = (np.uint32(word) for word in key)
        with explained(allocates=True):
            arrays = [cuda.to_device(np.ascontiguousarray(array)) for array in given]
            uniforms = cuda.device_array((self._uniforms + 2, steps), np.float64)
            values = cuda.to_device(self._rule.array())
            tokens = cuda.device_array((self._depth + 1, steps), np.int32)
            accepted = cuda.to_device(np.full(steps, -1))
            threads = min(steps, self._threads)
            launch = self._kernel[max(1, threads // BLOCK), min(threads, BLOCK)]
            launch(k0, k1, first, self._uniforms, *arrays, uniforms, values, tokens, accepted)
            found = tokens.copy_to_host(), accepted.copy_to_host()
        if (found[1] < 0).any():
            raise DeviceError(f"device: rule {self._rule.name} ran out of memory on the {self.name}; {CPU}")
        return found
