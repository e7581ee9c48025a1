"""Drafting systems beside each other: tokens per step, cost of a step, and speed on one machine."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from specsim import rules
from specsim.core._arguments import checked
from specsim.core._checks import check_between, check_count
from specsim.core._kernels import available_threads
from specsim.core._plotting import axes_or_new
from specsim.core._progress import ShowProgress, working
from specsim.core._provenance import Provenance
from specsim.core._streams import RandomSource, root_of
from specsim.core._tables import Line, Piece, Shown, Table, as_dict
from specsim.models import Pair
from specsim.planning.costs import Hardware, Network, Roofline
from specsim.simulation import simulate
from specsim.simulation._comparison import context_rows, mean_tv, show_tv
from specsim.simulation._sources import pair_of
from specsim.simulation.methods import Drafting, Method, get, names
from specsim.simulation.methods._systems import LAYERS, TARGET, WIDTH

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: An NVIDIA A100 with 80 GB, as its data sheet has it: bytes and bfloat16 operations a second.
A100 = Hardware(2.039e12, 312e12)
#: Bytes of keys and values that a token of context has, in 16 bits.
CACHE_BYTES = 2 * 2 * LAYERS * WIDTH
#: Tokens of context, unless told otherwise.
CONTEXT = 1024.0


@dataclass(frozen=True)
class MethodEntry:
    """A drafting system on one pair: `drafted` tokens a step, and its `cost` in passes of the target.

    `speed` is tokens per step / cost; `tv` the mean total variation of its rule's law, 0 if that is lossless
    and None if the law depends on rows ahead.
    """

    method: str
    rule: str
    drafted: int
    tokens_per_step: float
    error: float
    cost: float
    speed: float
    tv: float | None


@dataclass(frozen=True, eq=False)
class MethodComparison(Shown):
    """Drafting systems on one pair, `steps` steps each, `batch` sequences with `context` tokens each."""

    pair: Pair
    steps: int
    batch: int
    context: float
    entries: tuple[MethodEntry, ...]
    provenance: Provenance = field(repr=False)
    interrupted: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain Python values, for JSON."""
        return as_dict(self)

    def parts(self) -> list[Piece]:
        rows = [
            (
                one.method.partition(":")[0],
                one.rule,
                one.drafted,
                f"{one.tokens_per_step:.3f} ± {one.error:.3f}",
                f"{one.cost:.3f}",
                f"{one.speed:.3f}",
                show_tv(one.tv),
            )
            for one in sorted(self.entries, key=lambda entry: -entry.speed)
        ]
        columns = ("method", "rule", "drafted", "tokens/step", "cost", "speed", "TV")
        seed = self.provenance.root
        return [
            *[Line("interrupted: the methods so far", "bold yellow")] * self.interrupted,
            Table(columns, rows),
            f"{self.pair.name or 'pair'}, {self.steps:,} steps per method, seed {seed}; batch {self.batch}, "
            f"context {self.context:g}. cost: passes of the target; speed: tokens/step / cost",
        ]

    def records(self) -> list[dict[str, Any]]:
        """A row for each method."""
        return [asdict(entry) for entry in self.entries]

    def plot(self, ax: Axes | None = None) -> Axes:
        """The speed of each method as a bar, the fastest on top; lossy ones are hatched."""
        ax = axes_or_new(ax)
        ordered = sorted(self.entries, key=lambda entry: entry.speed)
        labels = [one.method.partition(":")[0] for one in ordered]
        bars = ax.barh(labels, [one.speed for one in ordered])
        for bar, one in zip(bars, ordered, strict=True):
            if one.tv != 0:
                bar.set_hatch("//")
                bar.set_fill(False)
        ax.bar_label(bars, [f"{one.tokens_per_step:.2f} / {one.cost:.2f}" for one in ordered], padding=3)
        ax.margins(x=0.25)
        ax.axvline(1.0, color="0.5", linewidth=1, zorder=0)
        ax.set(xlabel="speed: tokens per step / cost of a step, in passes of the target")
        return ax


@checked
def compare_methods(
    target: Any,
    draft: Any = None,
    *,
    methods: Sequence[str | Method] | None = None,
    batch: int = 1,
    context: float = CONTEXT,
    hardware: Hardware = A100,
    steps: int = 2**12,
    rng: RandomSource = None,
    threads: int | None = None,
    progress: ShowProgress = None,
) -> MethodComparison:
    """Simulate drafting systems on one pair, and compare tokens per step, cost and speed.

    The cost is that of a roofline: a target with the dimensions of LLaMA-7B, and drafters whose parameters
    and caches are the share `size` of the target's. Tokens per step come from the pair, costs do not.

    Parameters
    ----------
    target, draft : array_like, Model or Pair
        Two pmfs [V], two models, or a `Pair` of these.
    methods : sequence of str or Method, optional
        Drafting systems, with parameters if any; by default all.
    batch : int
        Sequences that are decoded together, ≥ 1.
    context : float
        Tokens of each that precede the step, ≥ 0.
    hardware : Hardware
        An A100 by default.
    steps, rng, threads
        Of each method, as in `specsim.simulate`.
    progress : bool or callable, optional
        As in `specsim.simulate`, in methods.

    Returns
    -------
    MethodComparison
        Ctrl-C gives the methods so far, as `interrupted`.

    Raises
    ------
    ValueError, TypeError
        For an unknown method, a pair that lacks what a method needs, and as `specsim.simulate`.

    Examples
    --------
    >>> p, q = [0.5, 0.3, 0.2], [0.2, 0.3, 0.5]
    >>> found = compare_methods(p, q, methods=["autoregressive", "spectr:drafts=4"], steps=1000, rng=1)
    >>> [entry.drafted for entry in found.entries]
    [5, 16]
    """
    steps, batch = check_count("steps", steps), check_count("batch", batch)
    check_between("context", context, 0.0, 1e9, "number of tokens")
    started, root, pair = time.perf_counter(), root_of(rng), pair_of(target, draft)
    chosen = [get(name) for name in (names() if methods is None else methods)]
    if not chosen:
        raise ValueError(f"methods: there is none; give some of {', '.join(names())}")
    drafting = [one.drafting(pair) for one in chosen]  # before the work
    p, q = context_rows(*pair)
    entries: list[MethodEntry] = []
    with working(progress, "compare", " methods") as work:
        try:
            for done, (one, made) in enumerate(zip(chosen, drafting, strict=True), 1):
                rule = rules.get(one.rule)
                how: dict[str, Any] = {"rule": rule, "gamma": made.shape, "steps": steps}
                run = simulate(made.pair, **how, rng=root, threads=threads)
                cost = step_cost(made, hardware, batch, context)
                speed = run.tokens_per_step / cost
                tv = None if rule.looks_ahead else mean_tv(rule, p, q)
                measured = (run.tokens_per_step, run.tokens_per_step_error)
                entries.append(MethodEntry(str(one), one.rule, made.shape.size, *measured, cost, speed, tv))
                if work.report is not None:
                    work.report(done, len(chosen))
        except KeyboardInterrupt:
            if not (work.outermost and entries):
                raise
    provenance = Provenance.record(root, available_threads(threads), time.perf_counter() - started)
    interrupted = len(entries) < len(chosen)
    return MethodComparison(pair, steps, batch, context, tuple(entries), provenance, interrupted)


def step_cost(drafting: Drafting, hardware: Hardware, batch: int, context: float) -> float:
    """The time of a step, in passes of the target over one token of each sequence."""
    size = drafting.size
    draft = Network(max(size * TARGET, 1.0), cache_bytes_per_token=size * CACHE_BYTES)
    target = Network(TARGET, cache_bytes_per_token=CACHE_BYTES)
    cost = Roofline(target, draft, hardware, batch, context)
    return cost.step_of(drafting.passes if size else (), drafting.shape.size + drafting.beside)
