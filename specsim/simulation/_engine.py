"""The Monte Carlo engine: draw and count the steps of a rule.

`_counting.py` splits a run into chunks and adds their counts, `_executors.py` runs chunks in other processes,
and `_checkpoints.py` stores the counts in files."""

from __future__ import annotations

import copyreg
import hashlib
import io
import os
import pickle
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specsim import rules
from specsim.core._accepted_lengths import (
    accepted_tokens,
    alpha_drafted,
    alpha_verified,
    alpha_verified_error,
    mean_tokens,
)
from specsim.core._arguments import checked
from specsim.core._checks import MOST_SECONDS, check_between, check_count
from specsim.core._files import check_target
from specsim.core._kernels import available_threads, kernel
from specsim.core._plotting import axes_or_new, lengths_plot
from specsim.core._progress import ShowProgress, working
from specsim.core._provenance import Provenance, this_code
from specsim.core._saving import decoded, encoded
from specsim.core._streams import Key, RandomSource, key_of, root_of
from specsim.core._tables import Line, Piece, Shown, Table, as_dict, bars
from specsim.core.distributions import Floats, Ints, check_rows, check_tokens
from specsim.models import (
    Draft,
    DynamicTree,
    LookaheadDecoding,
    Model,
    Pair,
    PromptLookup,
    Tree,
    as_tree,
    check_pair,
    default_pair,
    shared_contexts,
)
from specsim.simulation import methods
from specsim.simulation._checkpoints import CHECKPOINT_SECONDS, Checkpoint, Part, shard_interval
from specsim.simulation._counting import Interval, Partial, count_chunks, missing, no_counts
from specsim.simulation._executors import LostWorkers, Workers, count_spans, workers_of
from specsim.simulation._rows import (
    DynamicRows,
    LookaheadRows,
    LookupRows,
    PositionRows,
    RowReader,
    TraceRows,
    model_rows,
)
from specsim.simulation._sources import (
    Batch,
    FixedPairSource,
    RowSource,
    accepted_law_by_position,
    model_source,
)
from specsim.simulation.methods import Method
from specsim.theory import accepted_law, expected_tokens_by_position
from specsim.theory._rates import rates, with_error
from specsim.traces import Trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from specsim.simulation._cuda.counting import DeviceCounter
    from specsim.simulation._cuda.rows import DeviceRowCounter

#: The name of the counts of a simulation in its checkpoints.
STEPS = "steps"


@dataclass(frozen=True)
class StepTally:
    """Counts accepted lengths [depth+1], and tokens emitted at even and at odd positions [2, 1+V].

    Entry 0 counts the padding, which is faster than a branch. int32 halves the cache footprint of a chunk's
    counts, and two rows avoid that an addition waits for the previous one to the same token."""

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


@dataclass(frozen=True, eq=False)
class Simulation(Shown):
    """The counts of a simulated run, and the rates that follow from them.

    `lengths[k]` is the number of steps with k accepted tokens, `tokens[x]` the number of emitted tokens x.
    `alpha_context` is the mean acceptance probability of the standard rule over the contexts where steps
    begin, and `acceptance[i]` the probability that this rule accepts the token at i, given that those before
    it were: both are exact, not simulated. `acceptance` is known for a fixed pair and many rules, else None.
    A draft from a text may be short or missing; α counts its end as a rejection.
    `method` is the drafting system, if one was named. `source` describes the origin of p and q, `pair` is
    what they were, `tree` the shape of the draft. Of `planned` steps fewer were drawn if the run was
    `interrupted`. `shard` is the part (i, n) of a run that they are, if any."""

    source: str
    rule: str
    tree: Draft
    steps: int
    lengths: Ints = field(repr=False)
    tokens: Ints = field(repr=False)
    alpha_context: float
    planned: int
    pair: Pair
    provenance: Provenance = field(repr=False)
    acceptance: tuple[float, ...] | None = field(default=None, repr=False)
    method: str | None = None
    shard: tuple[int, int] | None = None

    @property
    def interrupted(self) -> bool:
        """Whether the run was ended before all its steps were drawn."""
        return self.steps < self.planned

    @property
    def gamma(self) -> int:
        """The most tokens that a step can accept: γ for a chain, the depth of a tree."""
        return self.tree.depth

    @property
    def accepted(self) -> int:
        """The number of accepted drafted tokens."""
        return accepted_tokens(self.lengths)

    @property
    def alpha_drafted(self) -> float:
        """Accepted / drafted tokens, as engines report it."""
        return alpha_drafted(self.lengths, self.tree.size)

    @property
    def alpha_verified(self) -> float:
        """Accepted / tested tokens: each step tests the accepted tokens and the rejected one."""
        return alpha_verified(self.lengths)

    @property
    def tokens_per_step(self) -> float:
        """Mean number of tokens that a step emits, in [1, γ+1]."""
        return mean_tokens(self.lengths)[0]

    @property
    def tokens_per_step_error(self) -> float:
        """Standard error of `tokens_per_step`."""
        return mean_tokens(self.lengths)[1]

    @property
    def expected_tokens(self) -> float | None:
        """The closed form of `tokens_per_step`, from `acceptance`."""
        return None if self.acceptance is None else float(expected_tokens_by_position(self.acceptance))

    @property
    def _has_formula(self) -> bool:
        """Whether the formula of i.i.d. acceptances with probability α is about this rule and shape."""
        return self.rule == "standard" and self.tree.is_chain and self.tree.sampling == "sampled"

    @property
    def alpha_verified_error(self) -> float:
        """Standard error of `alpha_verified`, for independent steps."""
        return alpha_verified_error(self.lengths)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain Python values, for JSON."""
        derived = ("gamma", "alpha_verified", "alpha_verified_error", "alpha_drafted")
        means = ("tokens_per_step", "tokens_per_step_error", "expected_tokens", "interrupted")
        return as_dict(self, *derived, *means, without=("tree",), draft=self.tree)

    def parts(self) -> Iterator[Piece]:
        seed = self.provenance.root
        how = "" if self.method is None else f"{self.method}: "
        drawn = f"{self.steps:,} steps, seed {seed}{self._part}"
        yield f"{how}{self.source}, rule {self.rule}, {self.tree}: {drawn}"
        if self.interrupted:
            yield self._interruption()
        errors = {"tokens_per_step": self.tokens_per_step_error, "alpha_verified": self.alpha_verified_error}
        yield rates(self, self.gamma if self._has_formula else None, errors, self.expected_tokens)
        shares = [row["share"] for row in self.records()]
        shown = zip(map("{:.4f}".format, shares), bars(shares), strict=True)
        yield Table(("accepted", "share of steps", ""), [(k, *row) for k, row in enumerate(shown)])

    def brief(self) -> Iterator[Piece]:
        """Tokens per step and α, in three lines."""
        mean = with_error(self.tokens_per_step, self.tokens_per_step_error)
        how = self.method or f"{self.rule}, {self.tree}"
        yield f"{mean} tokens per step of {how}, on {self.pair.name or self.source}"
        if self.interrupted:
            yield self._interruption()
        verified = with_error(self.alpha_verified, self.alpha_verified_error)
        yield f"α context {self.alpha_context:.5f}, verified {verified}, drafted {self.alpha_drafted:.5f}"
        seed = self.provenance.root
        yield f"{self.steps:,} steps, seed {seed}{self._part}, specsim {self.provenance.specsim}"

    @property
    def _part(self) -> str:
        return "" if self.shard is None else ", part {}/{} of a run".format(*self.shard)

    def _interruption(self) -> Line:
        return Line(f"interrupted after {self.steps:,} of {self.planned:,} steps", "bold yellow")

    def records(self) -> list[dict[str, Any]]:
        """A row for each number of accepted tokens: steps, and their share."""
        counts = enumerate(self.lengths.tolist())
        return [{"accepted": k, "steps": n, "share": n / self.steps} for k, n in counts]

    def plot(self, ax: Axes | None = None) -> Axes:
        """The share of steps by number of emitted tokens, with the closed form if there is one.

        For the standard rule on a chain it is the law of i.i.d. acceptances, also where rows change."""
        laws = {}
        if self._has_formula:
            laws["i.i.d., α context"] = accepted_law(self.alpha_context, self.gamma)
        elif self.acceptance is not None:
            laws["closed form"] = accepted_law_by_position(self.acceptance)
        return lengths_plot(axes_or_new(ax), self.lengths, laws)


@checked
def simulate(
    target: ArrayLike | Model | Trace | Pair,
    draft: ArrayLike | Model | PromptLookup | LookaheadDecoding | None = None,
    *,
    rule: str | rules.Rule = "standard",
    gamma: int | Draft = 5,
    method: str | Method | None = None,
    steps: int = 1_000_000,
    rng: RandomSource = None,
    threads: int | None = None,
    executor: Executor | str | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    shard: tuple[int, int] | None = None,
    device: str = "cpu",
    progress: ShowProgress = None,
) -> Simulation:
    """Draw speculative steps of a rule, and count accepted lengths and emitted tokens.

    Parameters
    ----------
    target, draft : array_like, Model, Trace, PromptLookup, LookaheadDecoding or Pair
        Two pmfs [V], the same at every position; the rows [N, V] of N positions of a text, frozen as those of
        a trace; two models, whose steps start at contexts that they share; a
        trace as `target` without `draft` (*frozen rows*: the logged rows, with drafts drawn again); a model
        and a `specsim.models.PromptLookup` or `LookaheadDecoding`, whose steps are those of decoding its text
        from the beginning, with or without a draft; or a `Pair` of these as `target`.
    rule : str or Rule
        A built-in rule, with parameters if any.
    gamma : int or Draft
        Drafted tokens of a chain, a `specsim.models.Tree`, or for two models a `DynamicTree`.
    method : str or Method, optional
        A drafting system in place of `rule` and `gamma`, of `specsim.simulation.methods`, such as
        "eagle2:nodes=30".
    steps : int
        Number of steps.
    rng : int, Generator, SeedSequence or None
        The same integer gives the same counts for any `threads`, `executor`, `checkpoint` and `shard`.
    threads : int, optional
        All cores by default.
    executor : Executor or str, optional
        Counts in other processes: "processes" (as many as `threads`), "dask" (the same on a local Dask
        cluster), the address of a Dask scheduler, or any `concurrent.futures.Executor`.
    checkpoint : path, optional
        File that stores the counts every minute and at the end. If it exists, the run continues from it, with
        its seed if `rng` is None.
    checkpoint_seconds : float
        Store them that often instead, ≥ 0; 0 after every chunk.
    shard : tuple of int, optional
        (i, n) with 0 ≤ i < n: count only part i of n; `specsim.merge` adds the checkpoints.
    device : str
        "cuda" takes an NVIDIA GPU, the first that `CUDA_VISIBLE_DEVICES` names. It draws and counts the steps
        of two pmfs [V], for the token-wise rules and block verification; of rows it verifies those that the
        CPU makes, for all rules but those that need logarithms, exponentials, powers or sorting. The counts
        are the same as on the CPU.
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
    steps, root = check_count("steps", steps), _root(rng, checkpoint, shard)
    tally = StepTally(source.tree.depth, source.vocab_size)
    gpu = _gpu_of(device, source, rule, tally, threads, executor)
    threads = available_threads(threads if gpu is None else 1)
    check_between("checkpoint_seconds", checkpoint_seconds, 0.0, MOST_SECONDS, "number of seconds")
    first, end = shard_interval(steps, source.chunk, shard)
    exact = source.alpha_context(), source.acceptance()
    total, kept = no_counts(tally), None
    if checkpoint is not None:
        about = {"threads": threads, "exact": encoded(exact), "pair": encoded(pair)}
        about["device"] = None if gpu is None else gpu.name
        about["method"] = None if system is None else str(system)
        kept = Checkpoint(checkpoint, _which_run(source, rule, steps, root), about, checkpoint_seconds)
        total = kept.part.found.get(STEPS, total)
        if total.steps and not first <= total.intervals[0][0] < total.intervals[-1][1] <= end:
            raise ValueError(f"{checkpoint}: has steps of another shard; use one file for each shard")
    interrupted = False
    left, before, started = missing(total.intervals, first, end), total.seconds, time.perf_counter()
    with (
        working(progress, "simulate") as work,
        workers_of(executor, threads) as workers,
        kept or nullcontext(),
    ):
        try:
            # a named generator would continue after an interrupt
            for counted in _count(source, tally, rule, key_of(root), left, workers, threads, gpu):
                total = replace(total + counted, seconds=before + time.perf_counter() - started)
                if kept is not None:
                    kept.keep(STEPS, total)
                if work.report is not None:
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
    provenance = Provenance.record(root, threads, total.seconds, None if gpu is None else gpu.name)
    pair = replace(pair, sha256=_digest(source))
    about_run = (source.kind, str(rules.get(rule)), source.tree)
    name = None if system is None else str(system)
    found = _simulation(*about_run, total, exact, end - first, pair, provenance, name)
    return replace(found, shard=None if (first, end) == (0, steps) else shard)


def pair_of(target: Any, draft: Any) -> Pair:
    """Target and draft as a pair, with a name if they are those of `default_pair`, or a trace."""
    if isinstance(target, Pair):
        if draft is not None:
            raise TypeError("draft: a pair as target brings its own draft; leave draft out")
        return target
    if isinstance(target, Trace):
        return Pair(target, draft, str(target.path))
    bundled = default_pair() if default_pair.cache_info().currsize else (None, None)
    is_bundled = target is not None and target is bundled[0] and draft is bundled[1]
    return Pair(target, draft, "ngram" if is_bundled else None)


def _count(
    source: FixedPairSource | RowSource,
    tally: StepTally,
    rule: str | rules.Rule,
    key: Key,
    intervals: Sequence[Interval],
    workers: Workers | None,
    threads: int,
    gpu: DeviceCounter | DeviceRowCounter | None,
) -> Iterator[Partial]:
    """Count the steps in `intervals` on `gpu`, `workers` or `threads` of this process; yields parts in any
    order."""
    if gpu is not None:
        return gpu.count(key, intervals)
    if workers is None:
        return count_chunks(source, tally, key, intervals, threads=threads)
    job = _SimulationJob(rules.registered_spec(rule), source.tree, *_models_of(source))
    return count_spans(workers, job, key, intervals, source.chunk)


def _gpu_of(
    device: str,
    source: FixedPairSource | RowSource,
    rule: str | rules.Rule,
    tally: StepTally,
    threads: int | None,
    executor: Executor | str | None,
) -> DeviceCounter | DeviceRowCounter | None:
    """The counter of `device`, None for the CPU. Raises ValueError if the device cannot count these steps."""
    if device == "cpu":
        return None
    if device != "cuda":
        raise ValueError(f"device: {device!r} is neither 'cpu' nor 'cuda'")
    if executor is not None:
        raise ValueError("executor: one GPU counts all steps; for more, give each a shard=(i, n) of the run")
    if threads is not None:
        raise ValueError("threads: has no effect with device='cuda'; leave it out")
    try:
        from specsim.simulation._cuda.counting import DeviceCounter
        from specsim.simulation._cuda.rows import DeviceRowCounter
    except ImportError as error:
        raise ValueError(
            "device: 'cuda' needs numba-cuda, which is not installed: pip install 'specsim-decoding[cuda]'"
        ) from error
    if isinstance(source, FixedPairSource):
        return DeviceCounter(source)
    return DeviceRowCounter(source, rules.get(rule), tally)


def merge_simulation(part: Part) -> Simulation:
    """The run whose parts add up to `part`. Raises ValueError with the steps that are missing."""
    run, total, drafted = part.run, part.found.get(STEPS, Partial({})), part.run["draft"]
    if gaps := missing(total.intervals, 0, run["steps"]):
        shown = ", ".join(f"{first:,} to {end - 1:,}" for first, end in gaps[:8])
        raise ValueError(
            f"of {run['steps']:,} steps {sum(end - first for first, end in gaps):,} are missing: "
            f"{shown}{', …' if len(gaps) > 8 else ''}; add the parts with these steps, or finish them"
        )
    tree = (
        Tree(drafted["parents"], drafted["drawing"], drafted["block"])
        if "parents" in drafted
        else DynamicTree(**{k: drafted[k] for k in ("width", "depth", "nodes")})
    )
    about = part.about
    provenance = Provenance.record(run["seed"], about["threads"], total.seconds, about["device"])
    pair = replace(decoded(part.about["pair"]), sha256=run["p and q"])
    about_run = (run["source"], run["rule"], tree)
    exact, method = decoded(part.about["exact"]), part.about["method"]
    return _simulation(*about_run, total, exact, run["steps"], pair, provenance, method)


def _simulation(
    source: str,
    rule: str,
    tree: Draft,
    total: Partial,
    exact: tuple[float, tuple[float, ...] | None],
    planned: int,
    pair: Pair,
    provenance: Provenance,
    method: str | None,
) -> Simulation:
    lengths, tokens = total.counts["lengths"], total.counts["tokens"].sum(axis=0)[1:]
    counts = (total.steps, lengths, tokens)
    alpha_context, acceptance = exact
    found = Simulation(source, rule, tree, *counts, alpha_context, planned, pair, provenance)
    return replace(found, acceptance=acceptance, method=method)


def _root(rng: RandomSource, checkpoint: str | os.PathLike[str] | None, shard: tuple[int, int] | None) -> int:
    """The seed: `rng`, or that of an existing checkpoint."""
    if rng is None and shard is not None:
        raise ValueError("rng (--seed): missing; all shards of a run need the same seed")
    if rng is None and checkpoint is not None and check_target(checkpoint).exists():
        return int(Part.read(checkpoint).run["seed"])
    return root_of(rng)


def _which_run(
    source: FixedPairSource | RowSource, rule: str | rules.Rule, steps: int, root: int
) -> dict[str, Any]:
    """What identifies a run, in plain values."""
    rules.registered_spec(rule)
    return {
        "source": source.kind,
        "rule": str(rules.get(rule)),
        "draft": source.tree.to_dict(),
        "steps": steps,
        "seed": root,
        "p and q": _digest_or_raise(source),
        **this_code(),
    }


@dataclass(frozen=True)
class _SimulationJob:
    """A simulation as a `specsim.simulation._executors.Job`; `target` and `draft` as for `simulate`."""

    rule: str
    tree: Draft
    target: Any
    draft: Any

    def source(self) -> FixedPairSource | RowSource:
        if isinstance(self.tree, Tree) and isinstance(self.target, np.ndarray) and self.target.ndim == 1:
            return FixedPairSource(rules.get(self.rule), self.target, self.draft, self.tree)
        return make_source(self.target, self.draft, rule=self.rule, gamma=self.tree)

    def tally(self, source: Any) -> StepTally:
        return StepTally(source.tree.depth, source.vocab_size)


def _models_of(source: FixedPairSource | RowSource) -> tuple[Any, Any]:
    """The target and the draft that a source was made of; pmfs normalised."""
    if isinstance(source, FixedPairSource):
        return source.p, source.q
    reader: Any = source.reader
    if isinstance(reader, TraceRows):
        return reader.trace, None
    if isinstance(reader, PositionRows):
        return reader.p, reader.q
    return reader.target, reader.draft


def _digest(source: FixedPairSource | RowSource) -> str | None:
    """`_digest_or_raise`, None for models that cannot be pickled."""
    try:
        return _digest_or_raise(source)
    except TypeError:
        return None


def _digest_or_raise(source: FixedPairSource | RowSource) -> str:
    """Of what p and q are, in 16 hexadecimal digits: the same for equal models, wherever a trace lies."""
    stream = io.BytesIO()
    pickler = pickle.Pickler(stream, protocol=5)
    pickler.fast = True  # written out in full: equal is the same as identical
    pickler.dispatch_table = copyreg.dispatch_table | {Trace: _trace_contents}
    try:
        pickler.dump(_models_of(source))
    except (pickle.PicklingError, TypeError, AttributeError, ValueError) as error:
        raise TypeError(
            f"checkpoint: what p and q are cannot be told from the models ({error}); write them as classes "
            "of a module that can be pickled"
        ) from error
    return hashlib.sha256(stream.getvalue()).hexdigest()[:16]


def _trace_contents(trace: Trace) -> tuple[Any, ...]:
    return tuple, ((trace.layout, [shard.sha256 for shard in trace.shards]),)


def make_source(
    target: ArrayLike | Model | Trace,
    draft: ArrayLike | Model | PromptLookup | LookaheadDecoding | None,
    *,
    rule: str | rules.Rule,
    gamma: int | Draft,
) -> FixedPairSource | RowSource:
    """Make the source of `simulate` and `replay`, which depends on the types of `target` and `draft`."""
    chosen = rules.get(rule)
    tree = _draft_shape(draft, gamma)
    chosen.check(tree)
    reader: RowReader
    if isinstance(tree, DynamicTree):
        if not (isinstance(target, Model) and isinstance(draft, Model)):
            raise TypeError(
                "gamma: a dynamic tree is drafted by a model after each of its tokens; give two models, such "
                "as default_pair() (ngram), or a Tree (--tree 2,2)"
            )
        check_pair(target, draft)
        reader = DynamicRows(target, draft, tree, shared_contexts(target, draft))
    elif isinstance(target, Trace):
        reader = _trace_rows(target, draft, tree, chosen.leaf_rows)
    elif isinstance(draft, PromptLookup | LookaheadDecoding):
        reader = _text_rows(target, draft, tree, chosen)
    elif isinstance(target, Model) or isinstance(draft, Model):
        reader = model_rows(target, draft, tree, chosen.leaf_rows)
        tree.check_siblings(reader.vocab_size)
    elif draft is None:
        raise TypeError("draft: missing; only a trace includes the draft")
    else:
        p, q = check_rows(target, "target"), check_rows(draft, "draft")
        if p.ndim not in (1, 2) or p.shape != q.shape:
            raise ValueError(
                f"target {p.shape} and draft {q.shape} must be two pmfs of one shape [V], or the rows "
                "[N, V] of N positions of a text"
            )
        if p.ndim == 1:
            tree.check_siblings(p.size)
            return FixedPairSource(chosen, p, q, tree)
        reader = _position_rows(p, q, tree, chosen.leaf_rows)
    return model_source(chosen, reader)


def _draft_shape(draft: Any, gamma: int | Draft) -> Draft:
    if isinstance(gamma, DynamicTree):
        return gamma
    return draft.tree(gamma) if isinstance(draft, PromptLookup | LookaheadDecoding) else as_tree(gamma)


def _position_rows(p: Floats, q: Floats, tree: Tree, leaf_rows: bool) -> PositionRows:
    if not tree.is_chain:
        raise ValueError("gamma: the rows of positions are along one text, so they cannot answer for a tree")
    if len(p) <= tree.size:
        raise ValueError(
            f"gamma: a step of {tree.size} drafted tokens reads the rows of {tree.size + 1} positions, and "
            f"there are {len(p)}"
        )
    return PositionRows(p, q, tree, leaf_rows)


def _text_rows(
    target: Any, draft: PromptLookup | LookaheadDecoding, tree: Tree, rule: rules.Rule
) -> LookupRows | LookaheadRows:
    name = "prompt lookup" if isinstance(draft, PromptLookup) else "lookahead decoding"
    if not isinstance(target, Model):
        raise TypeError(f"target: {name} needs a model as target")
    if draft.text.size <= target.order:
        size, order = draft.text.size, target.order
        raise ValueError(f"text: {size} tokens; the target reads {order} before the first step")
    check_tokens(draft.text, target.vocab_size, "text")
    draft.check_rule(rule)
    if isinstance(draft, PromptLookup):
        return LookupRows(target, draft, tree)
    return LookaheadRows(target, draft, tree)


def _trace_rows(trace: Trace, draft: Any, tree: Tree, leaf_rows: bool) -> TraceRows:
    if draft is not None:
        raise TypeError("draft: a trace brings its own q; leave draft out")
    if trace.num_steps == 0:
        raise ValueError(f"{trace.path}: the trace holds no step")
    if trace.top is not None:
        raise ValueError(
            f"{trace.path}: rows are cut to their {trace.top} most probable tokens, and steps are drawn from "
            "whole rows of p and q: give a trace that has them; 'specsim simulate' and "
            "specsim.traces.expect_tokens bound what some rules would emit from these"
        )
    if not tree.is_chain:
        raise ValueError("gamma: a trace logs the rows along one path, so it cannot answer for a tree")
    gamma, logged = tree.size, trace.gamma
    if gamma > logged:
        raise ValueError(f"gamma: the trace logged {logged} drafted tokens a step, {gamma} were asked for")
    if leaf_rows and gamma == logged and not trace.layout.bonus:
        raise ValueError(f"gamma: the rule reads q after {gamma} drafted tokens; it was not logged there")
    return TraceRows(trace, tree, leaf_rows)
