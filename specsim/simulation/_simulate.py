"""Draw and count the steps of a rule.

`_sources.py` draws the steps, and `_counting.py` counts them in chunks. `_executors.py` has them counted in
other processes, and `_checkpoints.py` stores the counts in files. `_result.py` has the rates that follow."""

import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike

from specsim import rules
from specsim.core._files import check_target
from specsim.core._kernels import available_threads, interpreted
from specsim.core._progress import ShowProgress, working
from specsim.core._provenance import Provenance
from specsim.core._saving import encoded
from specsim.core._streams import Key, Purpose, RandomSource, key_of, root_of, uniform, word
from specsim.core._tables import Shown
from specsim.core._types import MOST_SECONDS, Floats, Ints, TokenArray, check_between, checked, count_of
from specsim.models import LookaheadDecoding, Model, Pair, PromptLookup, Tree
from specsim.models._drafts.dynamic import Draft
from specsim.rules._common import fixed_pairs
from specsim.rules._common.integers import BITS, REST, STEP, coins_of, drawn, number, take_step
from specsim.simulation import _checkpoints, methods
from specsim.simulation._counting import Partial, StepTally, count_chunks, missing, no_counts
from specsim.simulation._cuda import gpu_of
from specsim.simulation._executors import LostWorkers, Workers, count_spans, workers_of
from specsim.simulation._result import STEPS, Simulation, counts_of
from specsim.simulation._rows import start_of
from specsim.simulation._sources import (
    FewContextsSource,
    FixedPairSource,
    RowSource,
    make_source,
    models_of,
    pair_of,
)
from specsim.traces._reader import Trace


@checked
def simulate(
    target: ArrayLike | Model | Trace | Pair,
    draft: ArrayLike | Model | PromptLookup | LookaheadDecoding | None = None,
    *,
    rule: str | rules.Rule = "standard",
    gamma: int | Draft = 5,
    method: str | methods.Method | None = None,
    steps: int | str = 1_000_000,
    rng: RandomSource = None,
    threads: int | None = None,
    executor: Executor | str | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_seconds: float = _checkpoints.CHECKPOINT_SECONDS,
    shard: tuple[int, int] | None = None,
    device: str | None = None,
    progress: ShowProgress = None,
) -> Simulation:
    """Draw speculative steps of a rule, and count accepted lengths and emitted tokens.

    Parameters
    ----------
    target, draft : array_like, Model, Trace, PromptLookup, LookaheadDecoding or Pair
        Two pmfs [V], the same at every position; two models, whose steps start at contexts that they share;
        the rows [N, V] of N positions of a text, or a trace as `target` without `draft` (*frozen rows*, with
        drafts drawn again); a model and a `specsim.models.PromptLookup` or `LookaheadDecoding`, whose steps
        decode its text from the beginning, with or without a draft; or a `Pair` of these as `target`.
    rule : str or Rule
        A built-in rule, with parameters if any.
    gamma : int or Draft
        Drafted tokens of a chain, a `specsim.models.Tree`, or for two models a `DynamicTree`.
    method : str or Method, optional
        A drafting system in place of `rule` and `gamma`, of `specsim.simulation.methods`, such as
        "eagle2:nodes=30".
    steps : int or str
        Number of steps; "10M" and "2e6" are counts too.
    rng : int, Generator, SeedSequence or None
        The same integer gives the same counts for any `threads`, `executor`, `checkpoint` and `shard`.
    threads : int, optional
        All cores by default.
    executor : Executor or str, optional
        Counts in other processes: "processes" (as many as `threads`), "dask" (the same on a local Dask
        cluster), the address of a Dask scheduler, or any `concurrent.futures.Executor`.
    checkpoint : path, optional
        A file that stores the counts. The run continues from it, with its seed if `rng` is None.
    checkpoint_seconds : float
        Store them that often, ≥ 0, every minute by default; 0 after every chunk.
    shard : tuple of int, optional
        (i, n) with 0 ≤ i < n: count part i of n alone; `specsim.merge` adds the checkpoints.
    device : str, optional
        The CPU by default; "cuda" takes the first NVIDIA GPU of `CUDA_VISIBLE_DEVICES`, with the counts of
        the CPU. It draws the steps of two pmfs [V], and of small models, for the token-wise rules and block
        verification; of rows it verifies those that the CPU makes, for all rules without logarithms,
        exponentials, powers or sorting.
    progress : bool or callable, optional
        A bar in terminals and notebooks by default, True anywhere, False nowhere; a function is called as
        progress(steps done, steps in all).

    Returns
    -------
    Simulation
        Ctrl-C gives the steps so far, as `interrupted`.

    Raises
    ------
    ValueError, TypeError
        If an argument is invalid, or the checkpoint is damaged or belongs to another run.
    LostWorkers
        A ConnectionError, if the executor loses its workers.

    Examples
    --------
    >>> run = simulate([0.5, 0.3, 0.2], [0.2, 0.3, 0.5], gamma=2, steps=10_000, rng=1)
    >>> int(run.lengths.sum()), round(run.alpha_context, 12)
    (10000, 0.7)
    """
    pair = drafted = pair_of(target, draft)
    system = None if method is None else methods.get(method)
    if system is not None:
        if gamma != 5 or rules.get(rule).name != "standard":
            raise ValueError(f"method: {system.name} has its own rule and draft; leave rule and gamma out")
        drafting = system.drafting(pair)
        drafted, rule, gamma = drafting.pair, system.rule, drafting.shape
    source = make_source(*drafted, rule=rule, gamma=gamma)
    steps = count_of("steps", steps)
    if rng is None and shard is not None:
        raise ValueError("rng (--seed): missing; give all shards of a run the same seed")
    if rng is None and checkpoint is not None and check_target(checkpoint).exists():
        rng = int(_checkpoints.Part.read(checkpoint).run["seed"])
    root = root_of(rng)
    tally = StepTally(source.tree.depth, source.vocab_size)
    gpu = gpu_of(device, source, rule, tally, threads, executor)
    threads = available_threads(threads if gpu is None else 1)
    check_between("checkpoint_seconds", checkpoint_seconds, 0.0, MOST_SECONDS, "number of seconds")
    first, end = _checkpoints.shard_interval(steps, source.chunk, shard)
    exact = source.alpha_context(), source.acceptance()
    total, kept = no_counts(tally), None
    named = {"device": gpu and gpu.name, "method": system and str(system)}
    if checkpoint is not None:
        about = {"threads": threads, "exact": encoded(exact), "pair": encoded(pair), **named}
        kept = _checkpoints.Checkpoint(
            checkpoint, _checkpoints.which_run(source, rule, steps, root), about, checkpoint_seconds
        )
        total = kept.part.found.get(STEPS, total)
        if total.steps and not first <= total.intervals[0][0] < total.intervals[-1][1] <= end:
            raise ValueError(f"{checkpoint}: has steps of another shard; give each shard its own file")
    interrupted = False
    left, before, started = missing(total.intervals, first, end), total.seconds, time.perf_counter()

    def counts(workers: Workers | None) -> Iterator[Partial]:
        """Of the steps that are left, in any order: of the GPU, the workers, or threads here."""
        key = key_of(root)
        if gpu is not None:
            return gpu.count(key, left)
        if workers is None:
            return count_chunks(source, tally, key, left, threads=threads)
        job = partial(_job, rules.registered_spec(rule), source.tree, *models_of(source))
        return count_spans(workers, job, key, left, source.chunk)

    with (
        working(progress, "simulate") as work,
        workers_of(executor, threads) as workers,
        kept or nullcontext(),
    ):
        try:
            # a named generator would continue after an interrupt
            for counted in counts(workers):
                total = replace(total + counted, seconds=before + time.perf_counter() - started)
                if kept is not None:
                    kept.keep(STEPS, total)
                work.report(total.steps, end - first)
        except KeyboardInterrupt:
            if not (work.outermost and total.steps):
                raise
            interrupted = True
        except LostWorkers as error:
            if checkpoint is None:
                raise
            kept_so_far = f"{checkpoint} has the counts so far; the same call continues from it"
            raise LostWorkers(f"{error}; {kept_so_far}") from error
    lost = missing(total.intervals, first, end)
    assert interrupted or not lost, f"steps {lost} were not counted"
    alpha_context, acceptance = exact
    return Simulation(
        source.kind,
        str(rules.get(rule)),
        source.tree,
        **counts_of(total),
        alpha_context=alpha_context,
        acceptance=acceptance,
        planned=end - first,
        pair=replace(pair, sha256=_checkpoints.digest(source)),
        provenance=Provenance.record(root, threads, total.seconds, named["device"]),
        method=named["method"],
        shard=None if (first, end) == (0, steps) else shard,
    )


def _job(rule: str, tree: Draft, target: Any, draft: Any) -> tuple[FixedPairSource | RowSource, StepTally]:
    source: FixedPairSource | RowSource
    if isinstance(tree, Tree) and isinstance(target, np.ndarray) and target.ndim == 1:
        source = FixedPairSource(rules.get(rule), target, draft, tree)
    else:
        source = make_source(target, draft, rule=rule, gamma=tree)
    return source, StepTally(source.tree.depth, source.vocab_size)


# Replay one step of a simulation in plain Python: Philox in Python integers, kernels uncompiled.

#: The most uniforms of verification that are printed.
SHOWN = 64


@dataclass(frozen=True)
class Node:
    """A drafted token: its parent, the uniform that drew it (None if not sampled), and its p and q."""

    parent: int
    token: int
    u: float | None
    p: float
    q: float


@dataclass(frozen=True, eq=False)
class Replay(Shown):
    """A replayed step: its start, the drafted nodes, the uniforms of verification, the emitted tokens."""

    source: str
    rule: str
    root: int
    key: Key
    step: int
    start: str
    nodes: tuple[Node, ...]
    verify_uniforms: tuple[float, ...]
    tokens: tuple[int, ...]
    derived = ("num_accepted",)

    @property
    def num_accepted(self) -> int:
        return len(self.tokens) - 1

    def records(self) -> list[dict[str, Any]]:
        """A row for each drafted token."""
        return [{"node": i, **asdict(node)} for i, node in enumerate(self.nodes, 1)]

    def parts(self) -> Iterator[str]:
        yield f"step {self.step} of {self.source}, rule {self.rule}, seed {self.root}"
        yield f"key     {self.key[0]:#010x} {self.key[1]:#010x}   (Philox4x32-10)"
        if self.start:
            yield f"start   {self.start}"
        for i, node in enumerate(self.nodes, 1):
            below = "" if node.parent == i - 1 else f" below {node.parent}"
            ratio = f" = {node.p / node.q:.6g}" if node.q else ""
            drawn = "" if node.u is None else f"u = {node.u:.17f}  "
            yield (f"draft   {i}{below}: {drawn}token {node.token}  p/q = {node.p:.6g}/{node.q:.6g}{ratio}")
        for i, u in enumerate(self.verify_uniforms[:SHOWN], 1):
            yield f"verify  {i}: u = {u:.17f}"
        if len(self.verify_uniforms) > SHOWN:
            yield f"        … {len(self.verify_uniforms)} in all"
        yield f"emitted {list(self.tokens)}   ({self.num_accepted} accepted)"


@checked
def replay(
    target: ArrayLike | Model | Trace,
    draft: ArrayLike | Model | PromptLookup | LookaheadDecoding | None = None,
    *,
    step: int,
    rule: str | rules.Rule = "standard",
    gamma: int | Draft = 5,
    rng: RandomSource = None,
) -> Replay:
    """Replay one step of `simulate` in plain Python.

    Parameters
    ----------
    target, draft, rule, gamma
        As in `simulate`.
    step : int
        Number of the step, from 0.
    rng : int
        The seed of the run, or the `root` of its provenance.

    Returns
    -------
    Replay

    Raises
    ------
    ValueError, TypeError
        As in `simulate`, and if `step` is not an integer in [0, 2^63).

    Examples
    --------
    >>> replay([0.5, 0.5], [0.8, 0.2], step=3, gamma=2, rng=1).tokens
    (1, 1)
    """
    if isinstance(step, bool) or not isinstance(step, int | np.integer) or not 0 <= step < 2**63:
        raise ValueError(f"step: {step!r} is not a step number; give an integer from 0 to 2^63 - 1")
    source, chosen = make_source(target, draft, rule=rule, gamma=gamma), rules.get(rule)
    root, step = root_of(rng), int(step)
    key, tree = key_of(root), source.tree
    u = _column(key, Purpose.DRAFT, step, tree.size)
    tokens, accepted = np.empty((tree.depth + 1, 1), dtype=np.int32), np.empty(1, dtype=np.int64)
    with interpreted():
        if isinstance(source, FixedPairSource):
            start, nodes, v = _pair_step(source, key, step, u, tokens, accepted)
        else:
            start, nodes, v = _row_step(source, chosen, key, step, u, tokens, accepted)
    emitted = tuple(int(token) for token in tokens[:, 0] if token >= 0)
    return Replay(source.kind, str(chosen), root, key, step, start, nodes, tuple(v[:, 0].tolist()), emitted)


def _pair_step(
    source: FixedPairSource, key: Key, step: int, u: Floats, tokens: TokenArray, accepted: Ints
) -> tuple[str, tuple[Node, ...], Floats]:
    """Fill tokens and accepted; return the start, the drafted nodes and the uniforms of verification."""
    pair, tree, start, contexts = source.rule.fixed_pair, source.tree, "", [0]
    p, q = np.atleast_2d(source.p, source.q)
    if pair.count is None:
        v = _column(key, Purpose.VERIFY, step, pair.uniforms(tree))
        pair.kernel(*source.tables, u, v, tokens, accepted)
        drafted = fixed_pairs.draw_draft(p[0], q[0], tree, u[:, 0])
        contexts *= tree.size + 1
    else:
        _, _, columns, cuts, follow, *starts = source.tables
        if isinstance(source, FewContextsSource):
            start, _ = source.reader.replayed(key, step, u)
            contexts = [starts[0][start_of(key, step, starts[0].size)]]
        indices, tokens[:] = range(tree.size + 1), -1
        words, rests = ([word(key, purpose, step, i) for i in indices] for purpose in (STEP, REST))
        take_step(columns, cuts, follow, contexts[0], words, rests, tokens[:, 0])
        numbers, k = [int(number(words, rests, i)) for i in indices], int(columns.shape[1] - 1).bit_length()
        drafted, tests = [], []
        for one in numbers[1:]:
            table = columns[3 * contexts[-1]]
            x, own, _, column = drawn(table, one)
            # where the number lies among those of its column that draw the token
            coin, threshold = coins_of(one, k), int(coins_of(table[column], k))
            tests.append(coin / threshold if own else (coin - threshold) / (2 ** (BITS - k) - threshold))
            drafted.append(int(x))
            contexts.append(follow[contexts[-1], x & follow.shape[1] - 1])
        last, *draws = (((one >> 30) % 2**k << BITS - k | coins_of(one, k)) * 2.0**-BITS for one in numbers)
        u, v = np.array(draws)[:, None], np.array([*tests, last])[:, None]
    rows, top = [(p[context], q[context]) for context in contexts], tree.draft_sampling == "top"
    return start, _nodes(tree.parents, drafted, rows, None if top else u[:, 0]), v


def _row_step(
    source: RowSource, rule: rules.Rule, key: Key, step: int, u: Floats, tokens: TokenArray, accepted: Ints
) -> tuple[str, tuple[Node, ...], Floats]:
    """As `_pair_step`, with the start of the step."""
    tree, reader = source.tree, cast(Any, source.reader)
    v = _column(key, Purpose.VERIFY, step, rule.uniforms(tree, source.vocab_size))
    start, rows = reader.replayed(key, step, u)
    rule.rows(rows.parents, rows.draft_tokens, rows.p, rows.q, v, rule.array(), tokens, accepted)
    rows.end(tokens, accepted)
    random = tree.draft_sampling != "top" and rows.depths is None  # not copied from a text
    pairs, drawn_with = list(zip(rows.p[0], rows.q[0], strict=False)), u[:, 0] if random else None
    size = tree.size if rows.sizes is None else rows.sizes[0]
    parents, drafted = (part[0, :size].tolist() for part in (rows.parents, rows.draft_tokens))
    return start, _nodes(parents, drafted, pairs, drawn_with), v


def _nodes(
    parents: Sequence[int], drafted: Sequence[int], rows: Sequence[tuple[Floats, Floats]], u: Floats | None
) -> tuple[Node, ...]:
    nodes = []
    for j, (parent, token) in enumerate(zip(parents, drafted, strict=True)):
        p, q = (float(row[token]) for row in rows[parent])
        nodes.append(Node(parent, token, None if u is None else float(u[j]), p, q))
    return tuple(nodes)


def _column(key: Key, purpose: Purpose, step: int, count: int) -> Floats:
    """The uniforms of one step, shape [count, 1], from Philox in Python integers."""
    return np.array([[uniform(key, purpose, step, i)] for i in range(count)])
