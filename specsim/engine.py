"""The Monte Carlo engine: chunks of steps in, integer counts out.

A run is cut into chunks; a chunk draws its steps from a source and a tally counts them into int64 arrays; the
arrays are added up. Steps are functions of (key, step) and sums of integers do not depend on their order, so
the counts are the same for any number of threads and any order of chunks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specsim import rules
from specsim.distributions import Ints, check_rows, check_tokens
from specsim.drafts import Draft, DynamicTree, PromptLookup, Tree, as_tree
from specsim.jit import available_threads, kernel
from specsim.lengths import accepted_tokens, alpha_drafted, alpha_verified, mean_tokens
from specsim.models import Model, check_pair, shared_contexts
from specsim.provenance import Provenance
from specsim.readers import DynamicRows, LookupRows, ModelRows, TraceRows
from specsim.showing import html_bars, html_list
from specsim.sources import Batch, Batches, FixedPairSource, RowSource, rule_verifier
from specsim.streams import Key, RandomSource, key_of, root_of
from specsim.traces import Trace

__all__ = ["Counts", "Progress", "Simulation", "Tally", "make_source", "run", "simulate"]

Counts = dict[str, NDArray[np.int64]]
T = TypeVar("T")

#: Called as progress(steps done, steps in all) after every chunk.
Progress = Callable[[int, int], None]


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

    def chunk(start: int) -> tuple[int, dict[str, NDArray[Any]]]:
        counts = tally.zeros()
        n = min(source.chunk, first + steps - start)
        for batch in source.batches(key, start, n):
            tally.count(counts, batch, key)
        return n, counts

    total = no_counts(tally)
    starts = range(first, first + steps, source.chunk)
    done = 0
    # one thread is this one: an interrupt then ends a chunk at once
    for n, counts in map(chunk, starts) if threads == 1 else _side_by_side(chunk, starts, threads):
        for name, array in counts.items():
            total[name] += array
        done += n
        if progress is not None:
            progress(done, steps)
    return total


def no_counts(tally: Tally) -> Counts:
    """The arrays of `tally`, before anything was counted, as int64."""
    return {name: array.astype(np.int64) for name, array in tally.zeros().items()}


def _side_by_side(work: Callable[[int], T], items: Iterable[int], threads: int) -> Iterator[T]:
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


# --- simulate --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StepTally:
    """Counts accepted lengths [depth+1], and tokens emitted at even and at odd positions [2, 1+V].

    Entry 0 counts the padding; a branch to leave it out would cost more. A chunk's tokens are counted in int32,
    half as large in the cache. With two rows an addition need not wait for the one before it, which often is to the
    same token.
    """

    depth: int
    vocab_size: int

    def zeros(self) -> dict[str, NDArray[Any]]:
        return {
            "lengths": np.zeros(self.depth + 1, dtype=np.int64),
            "tokens": np.zeros((2, self.vocab_size + 1), dtype=np.int32),
        }

    def count(self, counts: dict[str, NDArray[Any]], batch: Batch, key: Key) -> None:
        count_steps(batch.tokens, batch.accepted, counts["lengths"], counts["tokens"])


@kernel
def count_steps(tokens, accepted, lengths, emitted):  # type: ignore[no-untyped-def]
    """Add tokens[depth+1, B], accepted[B] to lengths[depth+1], and by position to emitted[2, 1+V], -1 to entry 0."""
    for k in range(lengths.size):
        lengths[k] += np.sum(accepted == k)
    positions = tokens.shape[0]
    for i in range(0, positions - 1, 2):
        even, odd = tokens[i], tokens[i + 1]
        for s in range(even.size):  # unsigned: no index from the end, which would take a branch
            emitted[0, np.uint32(even[s] + 1)] += 1
            emitted[1, np.uint32(odd[s] + 1)] += 1
    if positions % 2:
        for s in range(tokens.shape[1]):
            emitted[0, np.uint32(tokens[positions - 1, s] + 1)] += 1


@dataclass(frozen=True)
class Simulation:
    """Counts of a simulated run, and what follows from them.

    `lengths[k]` is the number of steps with exactly k accepted tokens, `tokens[x]` how often token x was emitted.
    `alpha_context` is the mean acceptance probability over the contexts where steps begin (exact, not simulated).
    `source` says where p and q came from, `tree` what was drafted.
    """

    source: str
    rule: str
    tree: Draft
    steps: int
    lengths: Ints = field(repr=False)
    tokens: Ints = field(repr=False)
    alpha_context: float
    provenance: Provenance = field(repr=False)

    @property
    def gamma(self) -> int:
        """The most tokens that a step can accept: γ for a chain, the depth of a tree."""
        return self.tree.depth

    @property
    def accepted(self) -> int:
        """Drafted tokens accepted in all."""
        return accepted_tokens(self.lengths)

    @property
    def alpha_drafted(self) -> float:
        """Accepted / drafted, which engines report."""
        return alpha_drafted(self.lengths, self.tree.size)

    @property
    def alpha_verified(self) -> float:
        """Accepted / positions tested: in each step the accepted ones and the rejected one."""
        return alpha_verified(self.lengths)

    @property
    def tokens_per_step(self) -> float:
        """Mean number of tokens that a step emits, in [1, γ+1]."""
        return mean_tokens(self.lengths)[0]

    @property
    def tokens_per_step_error(self) -> float:
        """Standard error of `tokens_per_step`."""
        return mean_tokens(self.lengths)[1]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain Python values, for JSON."""
        return {
            "source": self.source,
            "rule": self.rule,
            "gamma": self.gamma,
            "draft": self.tree.to_dict(),
            "steps": self.steps,
            "lengths": self.lengths.tolist(),
            "tokens": self.tokens.tolist(),
            "alpha_context": self.alpha_context,
            "alpha_verified": self.alpha_verified,
            "alpha_drafted": self.alpha_drafted,
            "tokens_per_step": self.tokens_per_step,
            "tokens_per_step_error": self.tokens_per_step_error,
            "provenance": self.provenance.to_dict(),
        }

    def _repr_html_(self) -> str:
        rows: Mapping[str, str] = {
            "source": self.source,
            "rule": self.rule,
            "draft": str(self.tree),
            "steps": f"{self.steps:,}",
            "α context": f"{self.alpha_context:.5f}",
            "α verified": f"{self.alpha_verified:.5f}",
            "α drafted": f"{self.alpha_drafted:.5f}",
            "tokens per step": f"{self.tokens_per_step:.5f} ± {self.tokens_per_step_error:.5f}",
        }
        shares = {str(k): n / self.steps for k, n in enumerate(self.lengths.tolist())}
        return html_list(rows) + html_bars("share of steps, by accepted tokens", shares)


def simulate(
    target: ArrayLike | Model | Trace,
    draft: ArrayLike | Model | PromptLookup | None = None,
    *,
    rule: str | rules.Rule = "standard",
    gamma: int | Draft = 5,
    steps: int = 1_000_000,
    rng: RandomSource = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Simulation:
    """Draw `steps` speculative steps of `rule`, each of `gamma` drafted tokens, and count what they emit.

    `rule` is the name of a built-in rule, or a `Rule`. For drafts other than a sampled chain `gamma` is a
    `specsim.drafts.Tree`, or for two models a `DynamicTree`.

    `target` and `draft` are two pmfs of shape [V] (the same pair at every position), or two models (each step
    starts at a context of the target's pool), or `target` is a trace and `draft` is left out (*frozen rows*: the
    logged rows of each step, with drafts redrawn), or `draft` is a `specsim.drafts.PromptLookup` (steps begin anywhere
    in its text). `rng` is an int, a Generator, a SeedSequence or None;
    the same integer gives the same counts on any number of `threads` (default: all cores).

    Raises ValueError or TypeError for anything that is not as above.

    >>> run = simulate([0.5, 0.3, 0.2], [0.2, 0.3, 0.5], gamma=2, steps=10_000, rng=1)
    >>> int(run.lengths.sum()), round(run.alpha_context, 12)
    (10000, 0.7)
    """
    source = make_source(target, draft, rule=rule, gamma=gamma)
    steps = check_steps(steps)
    root = root_of(rng)
    threads = available_threads(threads)
    started = time.perf_counter()
    tally = StepTally(source.tree.depth, source.vocab_size)
    counts = run(source, tally, key_of(root), 0, steps, threads=threads, progress=progress)
    return Simulation(
        source=source.kind,
        rule=str(rules.get(rule)),
        tree=source.tree,
        steps=steps,
        lengths=counts["lengths"],
        tokens=counts["tokens"].sum(axis=0)[1:],
        alpha_context=source.alpha_context(),
        provenance=Provenance.record(root, threads, time.perf_counter() - started),
    )


def make_source(
    target: ArrayLike | Model | Trace,
    draft: ArrayLike | Model | PromptLookup | None,
    *,
    rule: str | rules.Rule,
    gamma: int | Draft,
) -> FixedPairSource | RowSource:
    """The source behind `simulate` and `replay`: told apart by what `target` is."""
    chosen = rules.get(rule)
    if isinstance(gamma, DynamicTree):
        chosen.check(gamma)
        check_pair(target, draft)
        reader = DynamicRows(target, draft, gamma, shared_contexts(target, draft))  # type: ignore[arg-type]
        return RowSource(reader, rule_verifier(chosen, gamma))
    tree = as_tree(gamma)
    chosen.check(tree)
    if isinstance(target, Trace):
        return RowSource(_trace_rows(target, draft, tree, chosen.leaf_rows), rule_verifier(chosen, tree))
    if isinstance(draft, PromptLookup):
        return RowSource(_lookup_rows(target, draft, tree, chosen), rule_verifier(chosen, tree))
    if isinstance(target, Model) or isinstance(draft, Model):
        return RowSource(model_rows(target, draft, tree, chosen.leaf_rows), rule_verifier(chosen, tree))
    if draft is None:
        raise TypeError("draft: missing; only a trace brings its own")
    p, q = check_rows(target, "target"), check_rows(draft, "draft")
    if p.ndim != 1 or p.shape != q.shape:
        raise ValueError(f"target {p.shape} and draft {q.shape} must be two pmfs of one shape [V]")
    return FixedPairSource(chosen, p, q, tree)


def _lookup_rows(target: Any, lookup: PromptLookup, tree: Tree, rule: rules.Rule) -> LookupRows:
    if not isinstance(target, Model):
        raise TypeError("target: prompt lookup drafts for a model, which knows its rows anywhere in the text")
    if not tree.is_chain or rule.leaf_rows:
        raise ValueError("gamma: prompt lookup drafts one chain, and has no row q after it")
    if lookup.text.size <= target.order:
        raise ValueError(
            f"text: {lookup.text.size} tokens; the target reads {target.order} before the first step"
        )
    check_tokens(lookup.text, target.vocab_size, "text")
    return LookupRows(target, lookup, tree)


def model_rows(target: Any, draft: Any, tree: Tree, leaf_rows: bool = False) -> ModelRows:
    """Rows of two models that fit together, from the contexts that they share."""
    check_pair(target, draft)
    return ModelRows(target, draft, tree, shared_contexts(target, draft), leaf_rows)


def check_steps(steps: int) -> int:
    """`steps` as an int. Raises ValueError unless it is a positive integer."""
    if isinstance(steps, bool) or not isinstance(steps, int | np.integer) or steps < 1:
        raise ValueError(f"steps: {steps!r} is not a positive integer")
    return int(steps)


def _trace_rows(trace: Trace, draft: Any, tree: Tree, leaf_rows: bool) -> TraceRows:
    if draft is not None:
        raise TypeError("draft: a trace brings its own q; leave draft out")
    if trace.num_steps == 0:
        raise ValueError(f"{trace.path}: the trace holds no step")
    if trace.top is not None:
        raise ValueError(
            f"{trace.path}: rows are cut to their {trace.top} most probable tokens; a rule needs whole rows of p and q"
        )
    if not tree.is_chain:
        raise ValueError("gamma: a trace logs the rows along one path, so it cannot answer for a tree")
    if tree.size > trace.gamma:
        raise ValueError(
            f"gamma: the trace logged {trace.gamma} drafted tokens a step, {tree.size} were asked for"
        )
    if leaf_rows and tree.size == trace.gamma and not trace.layout.bonus:
        raise ValueError(
            f"gamma: the rule reads q after {tree.size} drafted tokens, and the trace did not log it there"
        )
    return TraceRows(trace, tree, leaf_rows)
