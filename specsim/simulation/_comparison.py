"""Compare rules on one pair: tokens per step, and total variation from the target's law."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from specsim import rules, theory
from specsim.core._accepted_lengths import mean_tokens
from specsim.core._arguments import checked
from specsim.core._checks import check_count, check_counts
from specsim.core._kernels import available_threads
from specsim.core._plotting import MARKERS, axes_or_new
from specsim.core._progress import ShowProgress, working
from specsim.core._provenance import Provenance
from specsim.core._streams import RandomSource, root_of
from specsim.core._tables import Line, Piece, Shown, Table, as_dict
from specsim.core.distributions import Floats, check_rows
from specsim.models import Model, Pair, Tree, chain, chains, shared_contexts
from specsim.rules import GROUPS, Parameter, Rule
from specsim.simulation._simulate import simulate
from specsim.simulation._sources import make_source, pair_of
from specsim.traces import Trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: The most contexts for mean total variation, since declared laws are computed in Python.
CONTEXTS = 256
#: Values of each parameter in a sweep.
SWEEP = 9


@dataclass(frozen=True)
class Entry:
    """One rule on one pair; `tv` is the mean total variation of the claimed law from the target's.

    It is 0 for a lossless rule, and None for a negative control, whose claim is false."""

    rule: str
    group: str
    drafts: str
    tokens_per_step: float
    error: float
    tv: float | None

    @property
    def name(self) -> str:
        """The rule without its parameters."""
        return self.rule.partition(":")[0]

    @property
    def line(self) -> str:
        """The line of a sweep: the rule and, if it has several parameters, the varied one."""
        rule = rules.get(self.rule)
        default = {parameter.name: parameter.default for parameter in rule.parameters}
        varied = [name for name, value in rule.values.items() if value != default[name]]
        return f"{rule.name}, {varied[0]}" if varied and len(default) > 1 else rule.name


@dataclass(frozen=True, eq=False)
class Comparison(Shown):
    """Rules on one pair of target and draft, `steps` steps each, all with the same random numbers."""

    source: str
    gamma: int
    steps: int
    entries: tuple[Entry, ...]
    provenance: Provenance
    pair: Pair
    interrupted: bool = False

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain Python values, for JSON."""
        return as_dict(self)

    def parts(self) -> list[Piece]:
        rows = [
            (one.rule, one.drafts, f"{one.tokens_per_step:.4f} ± {one.error:.4f}", show_tv(one.tv))
            for one in sorted(self.entries, key=lambda entry: -entry.tokens_per_step)
        ]
        return [
            *[Line("interrupted: the rules so far", "bold yellow")] * self.interrupted,
            Table(("rule", "drafts", "tokens/step", "TV"), rows),
            f"{self.source}, {self.steps:,} steps per rule, seed {self.provenance.root}"
            + "; TV –: wrong on purpose, or of a law that depends on rows ahead"
            * any(one.tv is None for one in self.entries),
        ]

    def records(self) -> list[dict[str, Any]]:
        """A row for each rule."""
        return [asdict(entry) for entry in self.entries]

    def plot(self, ax: Axes | None = None) -> Axes:
        """Tokens per step against total variation, every rule with a claim a point."""
        ax = axes_or_new(ax)
        for group, marker in zip(GROUPS, MARKERS, strict=False):
            some = [one for one in self if one.group == group and one.tv is not None]
            points = [(one.tv, one.tokens_per_step) for one in some]
            if points:
                ax.plot(*zip(*points, strict=True), marker, label=GROUPS[group])
        ax.set(xlabel="total variation", ylabel="tokens per step")
        ax.legend()
        return ax


def show_tv(tv: float | None) -> str:
    """Total variation with four decimals; 0 for a lossless rule, – where there is none to show."""
    return "–" if tv is None else f"{tv:.4f}" if tv else "0"


@checked
def compare(
    target: ArrayLike | Model | Trace | Pair,
    draft: ArrayLike | Model | None = None,
    *,
    names: Sequence[str] | None = None,
    gamma: int = 5,
    drafts: int = 2,
    steps: int = 2**16,
    sweep: bool = False,
    rng: RandomSource = None,
    threads: int | None = None,
    progress: ShowProgress = None,
) -> Comparison:
    """Simulate rules on one pair, and compare tokens per step and total variation.

    Parameters
    ----------
    target, draft : array_like, Model, Trace or Pair
        As for `simulate`. Frozen rows, of a trace or of positions, must be whole.
    names : sequence of str, optional
        Rules, with parameters if any; by default all, or of frozen rows those for a chain of `gamma` tokens.
    gamma, drafts : int
        Rules for one draft get a chain of `gamma` tokens, the others `drafts` such chains.
    steps, rng, threads
        Of each rule, as in `simulate`.
    sweep : bool
        Simulate lossy rules at several values of each parameter.
    progress : bool or callable, optional
        As in `simulate`, in rules.

    Returns
    -------
    Comparison
        Ctrl-C gives the rules so far, as `interrupted`.

    Raises
    ------
    ValueError, TypeError
        As in `simulate`.

    Examples
    --------
    >>> table = compare([0.5, 0.3, 0.2], [0.2, 0.3, 0.5], names=["standard", "lenience"], steps=1000, rng=1)
    >>> [(entry.name, round(entry.tv, 3)) for entry in table]
    [('standard', 0.0), ('lenience', 0.2)]
    """
    check_counts(gamma=gamma, drafts=drafts)
    started, root = time.perf_counter(), root_of(rng)
    pair = pair_of(target, draft)
    asked = _served(pair, gamma) if names is None or not len(names) else names
    try:
        chosen = [variant for name in asked for variant in _variants(name, sweep)]
    except (ValueError, TypeError) as error:
        raise type(error)(f"names: {error}") from None
    for rule in chosen:
        make_source(*pair, rule=rule, gamma=draft_for(rule, gamma, drafts))  # before the work
    p, q = context_rows(*pair)
    entries: list[Entry] = []
    source = ""
    with working(progress, "compare", " rules") as work:
        try:
            for done, rule in enumerate(chosen, 1):
                tree = draft_for(rule, gamma, drafts)
                run = simulate(pair, rule=str(rule), gamma=tree, steps=steps, rng=root, threads=threads)
                source, pair = run.source, run.pair
                unknown = rule.control or rule.looks_ahead
                tv, measured = None if unknown else mean_tv(rule, p, q), mean_tokens(run.lengths)
                group, drafted = rules.group_of(rule.name), describe(tree, gamma)
                entries.append(Entry(str(rule), group, drafted, *measured, tv))
                if work.report is not None:
                    work.report(done, len(chosen))
        except KeyboardInterrupt:
            if not (work.outermost and entries):
                raise
    seconds = time.perf_counter() - started
    provenance = Provenance.record(root, available_threads(threads), seconds)
    interrupted = len(entries) < len(chosen)
    return Comparison(source, gamma, steps, tuple(entries), provenance, pair, interrupted)


def _served(pair: Pair, gamma: int) -> list[str]:
    """The rules that can be compared on a pair: of frozen rows, along one path, those for chains."""
    target = pair.target
    if not isinstance(target, Trace) and (isinstance(target, Model) or np.ndim(target) < 2):
        return rules.names()
    # q behind the last drafted token may not have been logged
    bonus = not isinstance(target, Trace) or target.layout.bonus or gamma < target.gamma
    every = [rules.get(name) for name in rules.names()]
    return [rule.name for rule in every if not rule.claimed_on_trees and (bonus or not rule.leaf_rows)]


def draft_for(rule: Rule, gamma: int, drafts: int) -> Tree:
    """The draft of a rule in a comparison."""
    drawing = rule.draft_sampling[0]
    return chains(drafts, gamma, drawing) if rule.claimed_on_trees else chain(gamma, drawing)


def describe(tree: Tree, gamma: int) -> str:
    """The draft in a few words."""
    count = tree.size // gamma
    return f"{tree.sampling}, {gamma}" if count == 1 else f"{tree.sampling}, {count} × {gamma}"


def load_bundled() -> Comparison:
    """Load the comparison of all rules on the bundled n-gram pair, as `compare` computed it.

    Returns
    -------
    Comparison

    Examples
    --------
    >>> load_bundled().gamma
    5
    """
    stored = json.loads(files("specsim").joinpath("data/rules.json").read_text(encoding="utf-8"))
    entries = tuple(Entry(**entry) for entry in stored["entries"])
    pair, provenance = Pair(**stored["pair"]), Provenance(**stored["provenance"])
    return Comparison(**{**stored, "entries": entries, "pair": pair, "provenance": provenance})


def as_markdown(comparison: Comparison) -> str:
    """A Markdown table of every rule with its claim and its results on this pair.

    Parameters
    ----------
    comparison : Comparison
        Of `compare`, with rules of the registry.

    Returns
    -------
    str

    Examples
    --------
    >>> print(as_markdown(load_bundled()).splitlines()[0])
    **A single draft, lossless**
    """
    lines = []
    for group, claim in GROUPS.items():
        head = "| rule | lossless for, or law | tokens/step | TV | source |"
        lines += [f"**{claim.capitalize()}**", "", head, "|---|---|---|---|---|"]
        for entry in comparison:
            if entry.group == group:
                rule = rules.get(entry.name)
                numbers = f"{entry.tokens_per_step:.3f} | {show_tv(entry.tv)}"
                lines.append(f"| `{rule.name}` | {rule.claim} | {numbers} | {rule.citation} |")
        lines.append("")
    return "\n".join(lines)


def _variants(name: str, sweep: bool) -> list[Rule]:
    rule = rules.get(name)
    if not sweep or ":" in name or not rule.declared:
        return [rule]
    return [
        rule.with_parameters(**{parameter.name: value})
        for parameter in rule.parameters
        for value in sweep_values(parameter)
    ] or [rule]


def sweep_values(parameter: Parameter) -> list[float]:
    """Values over the range of a parameter, or around its default if the range is wide."""
    if parameter.whole:
        return [parameter.low + k for k in range(SWEEP) if parameter.low + k <= parameter.high]
    if parameter.high - parameter.low <= 3.0:
        first = parameter.low + 0.01 * parameter.above_low * (parameter.high - parameter.low)
        return [float(value) for value in np.linspace(first, parameter.high, SWEEP)]
    values = [parameter.default * 2.0**k for k in range(-SWEEP // 2 + 1, SWEEP // 2 + 1)]
    return [value for value in values if parameter.low <= value <= parameter.high]


def context_rows(target: Any, draft: Any) -> tuple[Floats, Floats]:
    """Rows of target and draft at up to `CONTEXTS` contexts where steps begin, evenly spaced over all."""
    if isinstance(target, Trace):
        _, p, q = target.steps(_some(np.arange(target.num_steps)))
        return p[:, 0], q[:, 0]
    if not isinstance(target, Model):
        if draft is None:
            raise TypeError("draft: missing; only a trace includes the draft")
        p, q = np.atleast_2d(check_rows(target, "target"), check_rows(draft, "draft"))
        if p.shape != q.shape:
            raise ValueError(f"target {p.shape} and draft {q.shape} must have one shape")
        return _some(p), _some(q)
    some = _some(shared_contexts(target, draft))
    return target.rows(some), draft.rows(some)


def _some(contexts: Any) -> Any:
    """Up to `CONTEXTS` of them, evenly spaced."""
    return contexts[:: -(-len(contexts) // CONTEXTS)]


def mean_tv(rule: Rule, p: Floats, q: Floats) -> float:
    """The mean total variation of the law that `rule` declares from rows p [B, V]; 0 if it is lossless.

    It is rounded to 15 decimals: the next ones differ between processors."""
    if rule.declared is None:
        return 0.0
    total = 0.0
    for p_row, q_row in zip(p, q, strict=True):
        law = rule.declared(p_row.tolist(), q_row.tolist(), 0, **rule.values)
        total += math.fsum(np.abs(np.array(law, dtype=np.float64) - p_row)) / 2.0
    return round(total / len(p), 15)


# The acceptance of one of K drafted tokens by each rule, and its upper bounds.

#: Rules for K children of a node, with the closed form of their acceptance if there is one.
RULES: dict[str, Callable[[Floats, Floats, int], float] | None] = {
    "naive_matching": theory.naive_matching_acceptance,
    "token_tree": None,
    "k_seq": theory.k_seq_acceptance,
    "recursive_rejection": theory.recursive_rejection_acceptance,
    "without_replacement": None,
    "greedy_multi_draft": theory.greedy_multi_draft_acceptance,
    "deterministic_children": None,
}
#: Sampling methods with an optimal acceptance.
BOUNDS = ("sampled", "without replacement", "top and sample", "top")


@dataclass(frozen=True)
class Acceptance:
    """The acceptance of a rule or bound at one number of drafts, with the standard `error`.

    `simulated` is None for a bound, `theory` None without a closed form."""

    name: str
    drawing: str
    drafts: int
    theory: float | None
    simulated: float | None
    error: float | None


@checked
def acceptance_by_drafts(
    p: Floats,
    q: Floats,
    most: int = 8,
    *,
    steps: int = 2**18,
    rng: RandomSource = None,
    threads: int | None = None,
) -> list[Acceptance]:
    """Simulate the probability that one of K drafted tokens is accepted, for every rule and bound.

    Parameters
    ----------
    p, q : ndarray, [V]
        pmfs of target and draft.
    most : int
        Largest number of drafts K; at K = 1 only the bounds are returned.
    steps, rng, threads
        Of each rule, as in `simulate`.

    Returns
    -------
    list of Acceptance

    Raises
    ------
    ValueError, TypeError
        As in `simulate`.

    Examples
    --------
    >>> found = acceptance_by_drafts(np.array([0.5, 0.5]), np.array([0.8, 0.2]), most=1)
    >>> found[0].name, found[0].drawing, round(found[0].theory, 12)
    ('bound', 'sampled', 0.7)
    """
    p, q = check_rows(p, "p"), check_rows(q, "q")
    check_count("most", most, 1, p.shape[-1])
    root, found = root_of(rng), []
    for drafts in range(1, most + 1):
        for drawing in BOUNDS:
            bound = theory.optimal_acceptance(p, q, drafts, drawing)
            found.append(Acceptance("bound", drawing, drafts, float(bound), None, None))
        for name, closed in RULES.items() if drafts > 1 else ():
            drawing = rules.get(name).draft_sampling[0]
            tree = Tree((0,) * drafts, drawing)
            run = simulate(p, q, rule=name, gamma=tree, steps=steps, rng=root, threads=threads)
            rate = float(run.lengths[1] / run.steps)
            error = float(np.sqrt(rate * (1.0 - rate) / run.steps))
            value = None if closed is None else float(closed(p, q, drafts))
            found.append(Acceptance(name, drawing, drafts, value, rate, error))
    return found
