"""Counting: chunks of steps in, integer counts out.

A run is cut into chunks; a chunk draws its steps from a source and a tally counts them into int64 arrays; the
arrays are added up. Steps are functions of (key, step) and sums of integers do not depend on their order, so
the counts are the same for any number of threads and any order of chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from specsim.core._streams import Key
from specsim.simulation._rows import pieces
from specsim.simulation._sources import Batch, Batches

__all__ = ["Counted", "Counts", "Interval", "Progress", "Tally", "add_up", "count_chunks", "no_counts", "run"]

Counts = dict[str, NDArray[np.int64]]
T = TypeVar("T")

#: Steps [first, end).
Interval = tuple[int, int]

#: Called as progress(steps done, steps in all) after every chunk.
Progress = Callable[[int, int], None]


class Counted(NamedTuple):
    """What was counted in the steps [first, first + steps), and the examples that a tally kept elsewhere."""

    first: int
    steps: int
    counts: dict[str, NDArray[Any]]
    examples: tuple[Any, ...] = ()


class Tally(Protocol):
    """What is counted. `zeros()` makes the integer arrays of a chunk, `count` adds one batch to them."""

    def zeros(self) -> dict[str, NDArray[Any]]: ...

    def count(self, counts: dict[str, NDArray[Any]], batch: Batch, key: Key) -> None: ...


def run(
    source: Batches,
    tally: Tally,
    key: Key,
    first: int,
    steps: int,
    *,
    threads: int,
    progress: Progress | None = None,
) -> Counts:
    """Count steps [first, first + steps) of `source`, chunk by chunk, on `threads` threads.

    An exception in a chunk, or Ctrl-C, cancels the chunks not yet begun and is raised here.
    """
    parts = count_chunks(source, tally, key, [(first, first + steps)], threads=threads)
    return add_up(parts, tally, steps, progress)


def add_up(parts: Iterable[Counted], tally: Tally, steps: int, progress: Progress | None = None) -> Counts:
    """The sum of `parts`, `steps` steps in all; examples that `tally` kept where they were counted are given to it here."""
    total, done = no_counts(tally), 0
    for part in parts:
        for name, array in part.counts.items():
            total[name] += array
        if part.examples:
            tally.examples.extend(part.examples)  # type: ignore[attr-defined]  # such a tally has them
        done += part.steps
        if progress is not None:
            progress(done, steps)
    return total


def count_chunks(
    source: Batches, tally: Tally, key: Key, intervals: Sequence[Interval], *, threads: int
) -> Iterator[Counted]:
    """The counts of each chunk of the steps in `intervals`, as they come, in any order. Raises as `run`."""

    def chunk(piece: tuple[int, int]) -> Counted:
        counts = tally.zeros()
        for batch in source.batches(key, *piece):
            tally.count(counts, batch, key)
        return Counted(*piece, counts)

    chunks = (piece for first, end in intervals for piece in pieces(first, end - first, source.chunk))
    # one thread is this one: an interrupt then ends a chunk at once
    return map(chunk, chunks) if threads == 1 else _side_by_side(chunk, chunks, threads)


def no_counts(tally: Tally) -> Counts:
    """The arrays of `tally`, before anything was counted, as int64."""
    return {name: array.astype(np.int64) for name, array in tally.zeros().items()}


def _side_by_side(work: Callable[[Any], T], items: Iterable[Any], threads: int) -> Iterator[T]:
    """Results of `work` on `items` as they come, in any order, with few of them waiting at a time."""
    waiting = iter(items)
    with ThreadPoolExecutor(threads) as pool:
        pending: set[Future[T]] = {pool.submit(work, item) for item in islice(waiting, 2 * threads)}
        try:
            while pending:
                finished, pending = wait(pending, return_when=FIRST_COMPLETED)
                pending |= {pool.submit(work, item) for item in islice(waiting, len(finished))}
                for future in finished:
                    yield future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
