"""Count steps in chunks: a source draws them, and a tally counts them into integer arrays, which are added.

Steps are functions of (key, step), so neither threads nor the order of chunks change the counts."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from specsim.core._kernels import kernel
from specsim.core._progress import Progress, silent
from specsim.core._streams import Key
from specsim.simulation._rows import pieces
from specsim.simulation._sources import Batch, Batches, FixedPairSource

Counts = dict[str, NDArray[np.int64]]
T = TypeVar("T")

#: Steps [first, end).
Interval = tuple[int, int]
#: Examples that a partial result keeps, the first ones of its steps.
EXAMPLES = 8


class Example(NamedTuple):
    """An impossible token that was emitted."""

    step: int
    position: int
    token: int


class Failure(NamedTuple):
    """Why steps could not be counted; `details` is the traceback of an exception."""

    kind: str
    text: str
    details: str = ""


@dataclass(frozen=True)
class Partial:
    """The counts of some steps, as threads, processes and files exchange them; `+` adds them in any order."""

    counts: Counts
    intervals: tuple[Interval, ...] = ()  #: the steps, sorted and disjoint
    examples: tuple[Example, ...] = ()  #: the first `EXAMPLES`
    failures: tuple[Failure, ...] = ()  #: why counting ended early
    seconds: float = 0.0

    @property
    def steps(self) -> int:
        return sum(end - first for first, end in self.intervals)

    def __add__(self, other: "Partial") -> "Partial":
        counts = dict(self.counts)
        for name, array in other.counts.items():  # a chunk may count in a narrower dtype
            counts[name] = np.add(counts[name], array, dtype=np.int64) if name in counts else array
        return Partial(
            counts,
            _join([*self.intervals, *other.intervals]),
            tuple(sorted([*self.examples, *other.examples])[:EXAMPLES]),
            self.failures + other.failures,
            self.seconds + other.seconds,
        )


class Tally(Protocol):
    """`zeros()` makes the integer arrays of a chunk; `count` adds a batch, and may return examples."""

    def zeros(self) -> dict[str, NDArray[Any]]: ...

    def count(self, counts: dict[str, NDArray[Any]], batch: Batch, key: Key) -> Sequence[Example] | None: ...


@dataclass(frozen=True)
class StepTally:
    """Counts accepted lengths [depth+1], and emitted tokens [2, 1+V] in two rows, which are to be added.

    Of drafts that vary in length also those that `ended` where k were accepted, and the `drafted` tokens.
    Entry 0 counts the padding, which is faster than a branch. int32 halves the cache footprint, and with a
    row for odd positions no addition waits for the previous one to the same token."""

    depth: int
    vocab_size: int

    def zeros(self) -> dict[str, NDArray[Any]]:
        return {
            "lengths": np.zeros(self.depth + 1, dtype=np.int64),
            "tokens": np.zeros((2, self.vocab_size + 1), dtype=np.int32),
        }

    def count(self, counts: dict[str, NDArray[Any]], batch: Batch, key: Key) -> None:
        count_steps(batch.tokens, batch.accepted, counts["lengths"], counts["tokens"])
        if (rows := batch.rows) is not None and rows.sizes is not None:
            ends = batch.accepted[batch.accepted == rows.depths]
            counts["ended"] = counts.get("ended", 0) + np.bincount(ends, minlength=self.depth + 1)
            counts["drafted"] = counts.get("drafted", 0) + rows.sizes.sum(keepdims=True)


@kernel
def count_steps(tokens, accepted, lengths, emitted):  # type: ignore[no-untyped-def]
    """Add tokens[depth+1, B], accepted[B] to lengths[depth+1] and emitted[2, 1+V]; entry 0 counts -1."""
    for k in range(lengths.size):
        found = 0
        for s in range(accepted.size):
            found += accepted[s] == k
        lengths[k] += found
    positions = tokens.shape[0]
    for i in range(0, positions - 1, 2):
        even, odd = tokens[i], tokens[i + 1]
        for s in range(even.size):  # unsigned: avoids the branch for negative indices
            emitted[0, np.uint32(even[s] + 1)] += 1
            emitted[1, np.uint32(odd[s] + 1)] += 1
    if positions % 2:
        for s in range(tokens.shape[1]):
            emitted[0, np.uint32(tokens[positions - 1, s] + 1)] += 1


def run(source: Batches, tally: Tally, key: Key, first: int, steps: int, *, threads: int) -> Partial:
    """Count steps [first, first + steps) of `source` on threads; an exception or Ctrl-C ends all chunks."""
    return add_up(count_chunks(source, tally, key, [(first, first + steps)], threads=threads), tally, steps)


def add_up(parts: Iterable[Partial], tally: Tally, steps: int, progress: Progress = silent) -> Partial:
    """The sum of `parts`, `steps` steps in all."""
    total = no_counts(tally)
    for part in parts:
        total += part
        progress(total.steps, steps)
    return total


def count_chunks(
    source: Batches, tally: Tally, key: Key, intervals: Sequence[Interval], *, threads: int
) -> Iterator[Partial]:
    """Yield the counts of each chunk of the steps in `intervals`, in any order. Raises as `run`."""

    def chunk(piece: tuple[int, int]) -> Partial:
        (part,) = count_in_turn(source, tally, key, *piece)
        return part

    size = min(source.chunk, -(-sum(end - first for first, end in intervals) // threads) or 1)
    chunks = (piece for first, end in intervals for piece in pieces(first, end - first, size))
    # without a pool an interrupt ends a chunk at once
    return map(chunk, chunks) if threads == 1 else _on_threads(chunk, chunks, threads)


def count_in_turn(source: Batches, tally: Tally, key: Key, first: int, steps: int) -> Iterator[Partial]:
    """The counts of each chunk of the steps [first, first + steps), without a pause between chunks."""
    if type(tally) is StepTally and isinstance(source, FixedPairSource) and source.rule.fixed_pair.count:
        for begin, size in pieces(first, steps, source.chunk):
            yield Partial(source.count(key, begin, size), ((begin, begin + size),))
        return
    begin, counts, examples = first, tally.zeros(), list[Example]()
    for batch in source.batches(key, first, steps):
        examples += tally.count(counts, batch, key) or ()
        end = batch.first + len(batch.accepted)
        if end in (begin + source.chunk, first + steps):
            yield Partial(counts, ((begin, end),), tuple(sorted(examples)[:EXAMPLES]))
            begin, counts, examples = end, tally.zeros(), []


def no_counts(tally: Tally) -> Partial:
    """The counts of no steps: zeros, as int64."""
    return Partial({name: array.astype(np.int64) for name, array in tally.zeros().items()})


def offset(progress: Progress, before: int, total: int) -> Progress:
    """The progress callback of a part that starts after `before` of `total` steps."""
    return lambda done, _: progress(before + done, total)


def missing(intervals: Sequence[Interval], first: int, end: int) -> list[Interval]:
    """The parts of [first, end) that are in none of the sorted `intervals`."""
    around = pairwise([(first, first), *intervals, (end, end)])
    gaps = ((max(b, first), min(a, end)) for (_, b), (a, _) in around)
    return [(a, b) for a, b in gaps if a < b]


def _join(intervals: Iterable[Interval]) -> tuple[Interval, ...]:
    """Sort intervals and join adjacent ones. Raises ValueError if two overlap."""
    joined: list[Interval] = []
    for first, end in sorted(intervals):
        if joined and first < joined[-1][1]:
            raise ValueError(f"steps {first:,} to {min(end, joined[-1][1]) - 1:,} are counted twice")
        if joined and first == joined[-1][1]:
            joined[-1] = joined[-1][0], end
        else:
            joined.append((first, end))
    return tuple(joined)


def _on_threads(work: Callable[[Any], T], items: Iterable[Any], threads: int) -> Iterator[T]:
    with ThreadPoolExecutor(threads) as pool:
        try:
            yield from side_by_side(work, items, pool, 2 * threads)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def side_by_side(
    work: Callable[[Any], T], items: Iterable[Any], pool: ThreadPoolExecutor, most: int
) -> Iterator[T]:
    """Yield the results of `work` on `items` as they end, with at most `most` items submitted."""
    waiting, running = iter(items), set[Future[T]]()
    while True:
        running |= {pool.submit(work, item) for item in islice(waiting, most - len(running))}
        if not running:
            return
        finished, running = wait(running, return_when=FIRST_COMPLETED)
        for future in finished:
            yield future.result()
