"""Drafting systems beside each other: tokens per step, cost of a step, and speed on one machine."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any

from specsim import rules
from specsim.core._plotting import COLORS, Axes, axes_or_new
from specsim.core._progress import ShowProgress
from specsim.core._provenance import Provenance
from specsim.core._streams import RandomSource, root_of
from specsim.core._tables import Piece, Table
from specsim.core._types import check_between, check_count, check_known, checked, count_of
from specsim.models import Pair
from specsim.planning._costs import Hardware, Network, Roofline
from specsim.simulation._grid import Compared, compiling, most_of, run_grid, show_tv, tv_of
from specsim.simulation._simulate import simulate
from specsim.simulation._sources import context_rows, pair_of
from specsim.simulation.methods import LAYERS, TARGET, WIDTH, Drafting, Method
from specsim.simulation.methods import get as get_method
from specsim.simulation.methods import names as method_names

#: An NVIDIA A100 with 80 GB, as its data sheet has it: bytes and bfloat16 operations a second.
A100 = Hardware(2.039e12, 312e12)
#: Bytes of keys and values that a token of context has, in 16 bits.
CACHE_BYTES = 2 * 2 * LAYERS * WIDTH
#: Tokens of context, unless told otherwise.
CONTEXT = 1024.0
#: Kinds of systems, with the colour and the hatch of their bars.
KINDS = {"lossless": (COLORS[0], ""), "assumed": (COLORS[4], "//"), "lossy": (COLORS[1], "xx")}
#: What a bar may be.
BARS = ("speed", "tokens_per_step", "cost")


def kind_of(method: str, tv: float | None) -> str:
    """The kind of a system: "assumed" is lossless, and drafts by `nearer`, a number that was chosen."""
    return "lossy" if tv != 0 else "assumed" if "nearer=" in method else "lossless"


@dataclass(frozen=True)
class MethodEntry:
    """A drafting system on one pair."""

    method: str
    rule: str
    drafted: int  #: tokens a step
    tokens_per_step: float
    error: float
    cost: float  #: of a step, in passes of the target
    speed: float  #: tokens per step / cost
    tv: float | None  #: the mean total variation of its rule; 0 if lossless, None if it depends on rows ahead


@dataclass(frozen=True, eq=False)
class MethodComparison(Compared):
    """Drafting systems on one pair, `steps` steps each, `batch` sequences with `context` tokens each."""

    pair: Pair
    steps: int
    batch: int
    context: float
    entries: tuple[MethodEntry, ...]
    provenance: Provenance = field(repr=False)
    interrupted: bool = False

    def _by_kind(self) -> Iterator[tuple[str, list[MethodEntry]]]:
        """The kinds that are there, with their systems, the fastest first."""
        ordered = sorted(self.entries, key=lambda entry: -entry.speed)
        for kind in KINDS:
            if some := [one for one in ordered if kind_of(one.method, one.tv) == kind]:
                yield kind, some

    def parts(self) -> list[Piece]:
        about = (
            f"{self.pair.name or 'pair'}, {self.steps:,} steps per method, seed {self.provenance.root}; "
            f"batch {self.batch}, context {self.context:g}. cost: passes of the target; "
            "speed: tokens/step / cost; assumed: how near the draft is to the target was chosen (nearer)"
        )
        tables = []
        for kind, some in self._by_kind():
            rows = []
            for one in some:
                known = one.method.partition(":")[0], one.rule, one.drafted
                tokens = f"{one.tokens_per_step:.3f} ± {one.error:.3f}"
                rows.append((*known, tokens, f"{one.cost:.3f}", f"{one.speed:.3f}", show_tv(one.tv)))
            tables.append(Table((kind, "rule", "drafted", "tokens/step", "cost", "speed", "TV"), rows))
        kind, some = next(self._by_kind())
        speeds = {one.method.partition(":")[0]: one.speed for one in some}
        fastest = most_of(f"{kind} methods", "times the target's speed", speeds)
        return self._parts("methods", fastest, *tables, about)

    def plot(self, ax: Axes | None = None, x: str = "speed") -> Axes:
        """The speed of each method, or `x`, as a bar, the fastest of each kind on top."""
        check_known("column", x, BARS)
        ax = axes_or_new(ax)
        for kind, some in reversed([*self._by_kind()]):
            labels, speeds = [one.method.partition(":")[0] for one in some], [getattr(one, x) for one in some]
            color, hatch = KINDS[kind]
            bars = ax.barh(
                labels[::-1], speeds[::-1], color=color, hatch=hatch, edgecolor="white", label=kind
            )
            said = [f"{one.tokens_per_step:.2f} / {one.cost:.2f}" for one in reversed(some)]
            ax.bar_label(bars, said, padding=3)
        ax.margins(x=0.25)
        ax.axvline(1.0, color="0.5", linewidth=1, zorder=0)
        more = ": tokens per step / cost of a step, in passes of the target" if x == "speed" else ""
        ax.set(xlabel=x.replace("_", " ") + more)
        handles, kinds = ax.get_legend_handles_labels()
        ax.legend(handles[::-1], kinds[::-1], loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=len(KINDS))
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
    steps: int | str = 2**12,
    rng: RandomSource = None,
    threads: int | None = None,
    executor: Executor | str | None = None,
    progress: ShowProgress = None,
) -> MethodComparison:
    """Simulate drafting systems on one pair, and compare tokens per step, cost and speed.

    The cost is a roofline's: of a target with the dimensions of LLaMA-7B, and drafters whose parameters and
    caches are the share `size` of the target's. Tokens per step come from the pair, costs do not.

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
    steps, rng, threads, executor
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
    steps, batch = count_of("steps", steps), check_count("batch", batch)
    check_between("context", context, 0.0, 1e9, "number of tokens")
    context = float(context)  # which float16 would overflow
    root, pair = root_of(rng), pair_of(target, draft)
    chosen = [get_method(name) for name in (method_names() if methods is None else methods)]
    if not chosen:
        raise ValueError(f"methods: none given; give some of {', '.join(method_names())}")
    drafting = [(one, one.drafting(pair)) for one in chosen]  # before the work
    rows = context_rows(*pair)
    work: dict[str, Any] = {"steps": steps, "rng": root, "executor": executor}

    def one_of(one: tuple[Method, Drafting], threads: int | None) -> MethodEntry:
        method, made = one
        rule, shape = rules.get(method.rule), made.shape
        run = simulate(made.pair, rule=rule, gamma=shape, **work, threads=threads)
        compiled(rule.name)
        cost = step_cost(made, hardware, batch, context)
        measured = (run.tokens_per_step, run.tokens_per_step_error, cost, run.tokens_per_step / cost)
        return MethodEntry(str(method), method.rule, shape.size, *measured, tv_of(rule, lambda: rows))

    with compiling([rules.get(one.rule) for one in chosen], pair, threads, executor) as compiled:
        ran = run_grid(one_of, drafting, "compare", " methods", root=root, threads=threads, progress=progress)
    return MethodComparison(pair, steps, batch, context, ran.rows, ran.provenance, ran.interrupted)


def step_cost(drafting: Drafting, hardware: Hardware, batch: int, context: float) -> float:
    """The time of a step, in passes of the target over one token of each sequence."""
    size = drafting.size
    draft = Network(max(size * TARGET, 1.0), cache_bytes_per_token=size * CACHE_BYTES)
    cost = Roofline(Network(TARGET, cache_bytes_per_token=CACHE_BYTES), draft, hardware, batch, context)
    return cost.step_of(drafting.passes if size else (), drafting.shape.size + drafting.beside)
