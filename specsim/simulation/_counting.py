"""Counting: chunks of steps in, integer counts out.

A run is cut into chunks; a chunk draws its steps from a source and a tally counts them into integer arrays; the results
of the chunks are added up. Steps are functions of (key, step) and sums of integers do not depend on their order, so
the counts are the same for any number of threads and any order of chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from specsim.core._streams import Key
from specsim.simulation._rows import pieces
from specsim.simulation._sources import Batch, Batches

Counts = dict[str, NDArray[np.int64]]
T = TypeVar("T")

#: Steps [first, end).
Interval = tuple[int, int]

#: Called as progress(steps done, steps in all) after every chunk.
Progress = Callable[[int, int], None]

#: Examples that a partial result keeps, the first ones of its steps.
EXAMPLES = 8


class Example(NamedTuple):
    """An emitted token that should not have been."""

    step: int
    position: int
    token: int


class Failure(NamedTuple):
    """Why steps could not be counted: a kind, and a text for the reader."""

    kind: str
    text: str


@dataclass(frozen=True)
class Partial:
    """What was counted of some steps: the one value that threads, processes, workers and files hand on.

    `intervals` are the steps, in order and apart from each other; `counts` the integer arrays of a tally; `examples` the
    first `EXAMPLES` of them; `failures` says why no more steps were counted; `seconds` is the time that it took.

    Partial results of different steps are added with `+`, in any order: the sum has the same steps, counts and examples.
    Adding the same steps twice is a ValueError.
    """

    counts: Counts
    intervals: tuple[Interval, ...] = ()
    examples: tuple[Example, ...] = ()
    failures: tuple[Failure, ...] = ()
    seconds: float = 0.0

    @property
    def steps(self) -> int:
        """How many steps were counted."""
        return sum(end - first for first, end in self.intervals)

    def __add__(self, other: Partial) -> Partial:
        counts = dict(self.counts)
        for name, array in other.counts.items():  # those of a chunk may be narrower than those of a sum
            counts[name] = np.add(counts[name], array, dtype=np.int64) if name in counts else array
        return Partial(
            counts,
            _join([*self.intervals, *other.intervals]),
            tuple(sorted([*self.examples, *other.examples])[:EXAMPLES]),
            self.failures + other.failures,
            self.seconds + other.seconds,
        )


class Tally(Protocol):
    """What is counted. `zeros()` makes the integer arrays of a chunk, `count` adds one batch to them.

    `count` may return examples, at most `EXAMPLES` of a batch, the first ones.
    """

    def zeros(self) -> dict[str, NDArray[Any]]: ...

    def count(self, counts: dict[str, NDArray[Any]], batch: Batch, key: Key) -> Sequence[Example] | None: ...


def run(
    source: Batches,
    tally: Tally,
    key: Key,
    first: int,
    steps: int,
    *,
    threads: int,
    progress: Progress | None = None,
) -> Partial:
    """Count steps [first, first + steps) of `source`, chunk by chunk, on `threads` threads.

    An exception in a chunk, or Ctrl-C, cancels the chunks not yet begun and is raised here.
    """
    parts = count_chunks(source, tally, key, [(first, first + steps)], threads=threads)
    return add_up(parts, tally, steps, progress)


def add_up(parts: Iterable[Partial], tally: Tally, steps: int, progress: Progress | None = None) -> Partial:
    """The sum of `parts`, `steps` steps in all."""
    total = no_counts(tally)
    for part in parts:
        total += part
        if progress is not None:
            progress(total.steps, steps)
    return total


def count_chunks(
    source: Batches, tally: Tally, key: Key, intervals: Sequence[Interval], *, threads: int
) -> Iterator[Partial]:
    """The counts of each chunk of the steps in `intervals`, as they come, in any order. Raises as `run`."""

    def chunk(piece: tuple[int, int]) -> Partial:
        counts, (first, steps) = tally.zeros(), piece
        examples: list[Example] = []
        for batch in source.batches(key, first, steps):
            examples += tally.count(counts, batch, key) or ()
        return Partial(counts, ((first, first + steps),), tuple(sorted(examples)[:EXAMPLES]))

    chunks = (piece for first, end in intervals for piece in pieces(first, end - first, source.chunk))
    # one thread is this one: an interrupt then ends a chunk at once
    return map(chunk, chunks) if threads == 1 else _side_by_side(chunk, chunks, threads)


def no_counts(tally: Tally) -> Partial:
    """What `tally` has counted of no steps: zeros, as int64."""
    return Partial({name: array.astype(np.int64) for name, array in tally.zeros().items()})


def offset(progress: Progress | None, before: int, total: int) -> Progress | None:
    """The callback of a part, given what came before it."""
    if progress is None:
        return None
    return lambda done, _: progress(before + done, total)


def missing(intervals: Sequence[Interval], first: int, end: int) -> list[Interval]:
    """What of the steps [first, end) is in none of `intervals`, which are in order.

    >>> missing([(2, 4), (6, 9)], 0, 10)
    [(0, 2), (4, 6), (9, 10)]
    """
    gaps = []
    for a, b in (*intervals, (end, end)):
        if a > first:
            gaps.append((first, min(a, end)))
        first = max(first, b)
        if first >= end:
            break
    return gaps


def _join(intervals: Iterable[Interval]) -> tuple[Interval, ...]:
    """In order, those that touch made one. Raises ValueError where two overlap."""
    joined: list[Interval] = []
    for first, end in sorted(intervals):
        if joined and first < joined[-1][1]:
            raise ValueError(f"steps {first:,} to {min(end, joined[-1][1]) - 1:,} are counted twice")
        if joined and first == joined[-1][1]:
            joined[-1] = joined[-1][0], end
        else:
            joined.append((first, end))
    return tuple(joined)


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
