"""Compare rules on one pair: tokens per step, and total variation from the target's distribution."""

import json
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from specsim import theory
from specsim.core import _plotting as plotting
from specsim.core._plotting import COLORS, LINES, Axes, Figure
from specsim.core._progress import ShowProgress
from specsim.core._provenance import Provenance
from specsim.core._streams import RandomSource, root_of
from specsim.core._tables import Piece, Table
from specsim.core._types import check_count, check_counts, check_known, checked, count_of
from specsim.core.distributions import Floats, check_rows
from specsim.core.stats import mean_tokens
from specsim.models import Model, Pair, Tree
from specsim.rules import GROUPS, Parameter, Rule, get, group_of, names
from specsim.simulation._grid import Compared, compiling, draft_for, most_of, run_grid, show_tv, tv_of
from specsim.simulation._simulate import simulate
from specsim.simulation._sources import BY_SIBLINGS, context_rows, make_source, pair_of
from specsim.traces._reader import Trace

#: Values of each parameter in a sweep, and how many rules have their names in a picture.
SWEEP, NAMED = 9, 12


@dataclass(frozen=True)
class Entry:
    """One rule on one pair."""

    rule: str
    group: str
    drafts: str
    tokens_per_step: float
    error: float
    tv: float | None  #: the mean total variation from the target; 0 if lossless, None for a false claim

    @property
    def name(self) -> str:
        """The rule without its parameters."""
        return self.rule.partition(":")[0]

    @property
    def line(self) -> str:
        """The line of a sweep: the rule and, if it has several parameters, the varied one."""
        if self.name not in names():
            return self.rule
        rule = get(self.rule)
        default = _defaults(rule)
        varied = [name for name, value in rule.values.items() if value != default[name]]
        return f"{rule.name}, {varied[0]}" if varied and len(default) > 1 else rule.name


@dataclass(frozen=True, eq=False)
class Comparison(Compared):
    """Rules on one pair of target and draft, `steps` steps each, all from one seed."""

    source: str
    gamma: int
    steps: int
    entries: tuple[Entry, ...]
    provenance: Provenance
    pair: Pair
    interrupted: bool = False

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    def parts(self) -> list[Piece]:
        rows = [
            (one.rule, one.drafts, f"{one.tokens_per_step:.4f} ± {one.error:.4f}", show_tv(one.tv))
            for one in sorted(self.entries, key=lambda entry: -entry.tokens_per_step)
        ]
        about = f"{self.source}, {self.steps:,} steps per rule, seed {self.provenance.root}"
        if any(one.tv is None for one in self.entries):
            about += "; TV –: wrong on purpose, or dependent on rows ahead"
        best = {one.rule: one.tokens_per_step for one in self.entries if one.tv == 0}
        first = most_of("lossless rules", "tokens per step", best)
        return self._parts("rules", first, Table(("rule", "drafts", "tokens/step", "TV"), rows), about)

    def plot(self, ax: Axes | None = None, x: str = "tv") -> Axes:
        """Tokens per step against total variation, every rule with a claim a point; few have their names.

        `x` may also be a parameter of rules, such as "lenience": those that have it are lines then."""
        values = [get(one.rule).values if one.name in names() else {} for one in self]
        check_known("setting", x, ["tv", *{name: 0 for some in values for name in some}])
        ax, lines = plotting.axes_or_new(ax), GROUPS if x == "tv" else {one.name: one.name for one in self}
        style: Any = {"linestyle": "none"} if x == "tv" else {"fillstyle": "none"}  # lines may coincide
        for marker, (key, label) in zip(plotting.MARKERS * len(lines), lines.items(), strict=False):
            some = [one for one in zip(self, values, strict=True) if key in (one[0].group, one[0].name)]
            points = [(one.tv if x == "tv" else own.get(x), one.tokens_per_step) for one, own in some]
            if points := [point for point in points if point[0] is not None]:
                ax.plot(*zip(*points, strict=True), marker=marker, label=label, **style)
        named = [one for one in self if one.tv is not None] * (x == "tv" and len(self.entries) <= NAMED)
        for one, height in _apart(named, float(np.ptp(ax.get_ylim())) / 20.0):
            way = -1 if 2.0 * (one.tv or 0.0) > ax.get_xlim()[1] else 1
            place: Any = {"textcoords": "offset points", "ha": ("left", "right")[way < 0], "va": "center"}
            ax.annotate(one.rule, (one.tv or 0.0, height), (8 * way, 0), fontsize="small", **place)
        ax.set(xlabel="total variation" if x == "tv" else x, ylabel="tokens per step")
        ax.legend(fontsize="small")
        return ax


@checked
def compare(
    target: ArrayLike | Model | Trace | Pair,
    draft: ArrayLike | Model | None = None,
    *,
    rules: Sequence[str | Rule] | None = None,
    gamma: int = 5,
    drafts: int = 2,
    steps: int | str = 2**16,
    sweep: bool = False,
    rng: RandomSource = None,
    threads: int | None = None,
    executor: Executor | str | None = None,
    progress: ShowProgress = None,
) -> Comparison:
    """Simulate rules on one pair, and compare tokens per step and total variation.

    Parameters
    ----------
    target, draft : array_like, Model, Trace or Pair
        As for `simulate`. Frozen rows, of a trace or of positions, must be whole.
    rules : sequence of str or Rule, optional
        Built-in rules, with parameters if any, and rules of your own. By default all built-in ones; of frozen
        rows those for a chain of `gamma` tokens.
    gamma, drafts : int
        Rules for one draft get a chain of `gamma` tokens, the others `drafts` such chains.
    steps, rng, threads, executor
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
    >>> table = compare([0.5, 0.3, 0.2], [0.2, 0.3, 0.5], rules=["standard", "lenience"], steps=1000, rng=1)
    >>> [(entry.name, round(entry.tv, 3)) for entry in table]
    [('standard', 0.0), ('lenience', 0.2)]
    """
    check_counts(gamma=gamma, drafts=drafts)
    if isinstance(rules, str | Rule):
        raise TypeError(f"rules: {str(rules)!r} is one rule; give a sequence, such as ['{rules}']")
    root, pair, steps = root_of(rng), pair_of(target, draft), count_of("steps", steps)
    work: dict[str, Any] = {"steps": steps, "rng": root, "executor": executor}
    asked = _served(pair, gamma) if rules is None or not len(rules) else rules
    try:
        chosen = [variant for one in asked for variant in _variants(one, sweep)]
    except (ValueError, TypeError) as error:
        raise type(error)(f"rules: {error}") from None
    for rule in chosen:
        make_source(*pair, rule=rule, gamma=draft_for(rule, gamma, drafts))  # before the work
    rows = context_rows(*pair)

    def one_of(rule: Rule, threads: int | None) -> tuple[Entry, str, Pair]:
        tree = draft_for(rule, gamma, drafts)
        run = simulate(pair, rule=rule, gamma=tree, **work, threads=threads)
        compiled(rule.name)
        measured, tv = mean_tokens(run.lengths), tv_of(rule, lambda: rows)
        claim = "lossy" if rule.declared else "tree" if rule.claimed_on_trees else "chain"
        own = "controls" if rule.control else claim
        group = group_of(rule.name) if rule.name in names() else own
        return Entry(str(rule), group, describe(tree, gamma), *measured, tv), run.source, run.pair

    with compiling(chosen, pair, threads, executor) as compiled:
        ran = run_grid(one_of, chosen, "compare", " rules", root=root, threads=threads, progress=progress)
    entries, sources, pairs = zip(*ran.rows, strict=True)
    return Comparison(sources[0], gamma, steps, entries, ran.provenance, pairs[0], ran.interrupted)


def _served(pair: Pair, gamma: int) -> list[str]:
    """The rules that a pair can compare: of frozen rows, along one path, those for chains."""
    target = pair.target
    if not isinstance(target, Trace) and (isinstance(target, Model) or np.ndim(target) < 2):
        return names()
    # q after the last drafted token may not have been logged
    bonus = not isinstance(target, Trace) or target.layout.bonus or gamma < target.gamma
    every = map(get, names())
    return [rule.name for rule in every if not rule.claimed_on_trees and (bonus or not rule.leaf_rows)]


def describe(tree: Tree, gamma: int) -> str:
    count = tree.size // gamma
    return f"{tree.draft_sampling}, {gamma}" if count == 1 else f"{tree.draft_sampling}, {count} × {gamma}"


def load_bundled() -> Comparison:
    """Load the comparison of all rules on the bundled n-gram pair, as `compare` computed it."""
    stored = json.loads(files("specsim").joinpath("data/rules.json").read_text(encoding="utf-8"))
    entries = tuple(Entry(**entry) for entry in stored["entries"])
    pair, provenance = Pair(**stored["pair"]), Provenance(**stored["provenance"])
    return Comparison(**{**stored, "entries": entries, "pair": pair, "provenance": provenance})


def _variants(rule: str | Rule, sweep: bool) -> list[Rule]:
    """The rule; in a sweep several of a lossy one without given values."""
    found = get(rule)
    given = ":" in rule if isinstance(rule, str) else found.values != _defaults(found)
    if not sweep or given or not found.declared:
        return [found]
    return [
        found.with_parameters(**{parameter.name: value})
        for parameter in found.parameters
        for value in sweep_values(parameter)
    ] or [found]


def _defaults(rule: Rule) -> dict[str, float]:
    return {parameter.name: parameter.default for parameter in rule.parameters}


def sweep_values(parameter: Parameter) -> list[float]:
    """Values over the range of a parameter, or around its default if the range is wide."""
    if parameter.whole:
        return [parameter.low + k for k in range(SWEEP) if parameter.low + k <= parameter.high]
    if parameter.high - parameter.low <= 3.0:
        first = parameter.low + 0.01 * parameter.above_low * (parameter.high - parameter.low)
        return [float(value) for value in np.linspace(first, parameter.high, SWEEP)]
    values = [parameter.default * 2.0**k for k in range(-SWEEP // 2 + 1, SWEEP // 2 + 1)]
    return [value for value in values if parameter.low <= value <= parameter.high]


#: Rules for K children of a node.
RULES = (
    "naive_matching", "token_tree", "k_seq", "recursive_rejection", "without_replacement",
    "greedy_multi_draft", "deterministic_children",
)  # fmt: skip
#: Sampling methods with an optimal acceptance.
BOUNDS = ("sampled", "without replacement", "top and sample", "top")


@dataclass(frozen=True)
class Acceptance:
    """The acceptance of a rule or bound at one number of drafts."""

    name: str
    draft_sampling: str
    drafts: int
    theory: float | None  #: None without a closed form
    simulated: float | None  #: None for a bound
    error: float | None  #: the standard error of `simulated`


@checked
def acceptance_by_drafts(
    p: Floats,
    q: Floats,
    max_drafts: int = 8,
    *,
    steps: int | str = 2**18,
    rng: RandomSource = None,
    threads: int | None = None,
) -> list[Acceptance]:
    """Simulate the probability that one of K drafted tokens is accepted, for every rule and bound.

    Parameters
    ----------
    p, q : ndarray, [V]
        pmfs of target and draft.
    max_drafts : int
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
    >>> found = acceptance_by_drafts(np.array([0.5, 0.5]), np.array([0.8, 0.2]), max_drafts=1)
    >>> found[0].name, found[0].draft_sampling, round(found[0].theory, 12)
    ('bound', 'sampled', 0.7)
    """
    p, q = check_rows(p, "p"), check_rows(q, "q")
    check_count("max_drafts", max_drafts, 1, p.shape[-1])
    root, found = root_of(rng), []
    for drafts in range(1, max_drafts + 1):
        for drawing in BOUNDS:
            bound = theory.optimal_acceptance(p, q, drafts, drawing)
            found.append(Acceptance("bound", drawing, drafts, float(bound), None, None))
        for name in RULES if drafts > 1 else ():
            drawing = get(name).draft_sampling[0]
            # that of drafts without replacement is an enumeration, and no closed form
            closed = BY_SIBLINGS.get((name, drawing)) if drawing != "without replacement" else None
            tree = Tree((0,) * drafts, drawing)
            run = simulate(p, q, rule=name, gamma=tree, steps=steps, rng=root, threads=threads)
            rate = float(run.lengths[1] / run.steps)
            error = float(np.sqrt(rate * (1.0 - rate) / run.steps))
            value = None if closed is None else float(closed(p, q, drafts))
            found.append(Acceptance(name, drawing, drafts, value, rate, error))
    return found


#: Panels of lossy rules side by side.
COLUMNS = 4
#: Total variation below which a rule is drawn as lossless.
NONE = 1e-9


def pareto_figure(comparison: Comparison) -> Figure:
    """Tokens per step against TV: lossless rules on the left, a panel for each lossy rule, others grey."""
    from matplotlib.figure import Figure

    with plotting.figure_style():
        honest = [entry for entry in comparison if entry.tv is not None]
        exact = [entry for entry in honest if entry.group in ("chain", "tree") and (entry.tv or 0.0) < NONE]
        lossy: dict[str, list[Entry]] = {}
        for entry in sorted(honest, key=lambda entry: entry.rule):
            if entry not in exact:
                lossy.setdefault(entry.name, []).append(entry)
        # rules with legends side by side
        names = sorted(lossy, key=lambda name: -len({entry.line for entry in lossy[name]}))
        columns = min(COLUMNS, max(1, len(lossy)))
        rows = max(1, -(-len(lossy) // columns))
        height = 1.6 + max(1.4 * rows, 0.15 * len(exact), 1.6)
        figure = Figure(figsize=(2.7 + 1.4 * columns, height))
        grid = figure.add_gridspec(rows, columns + 1, width_ratios=[1.8, *[1.0] * columns])
        _draw_lossless(figure.add_subplot(grid[:, 0]), exact)
        panels = [figure.add_subplot(grid[k // columns, 1 + k % columns]) for k in range(len(lossy))]
        for place, (panel, name) in enumerate(zip(panels, names, strict=True)):
            _draw_lossy(panel, lossy, name)
            panel.sharex(panels[0])
            panel.sharey(panels[0])
            panel.tick_params(labelleft=place % columns == 0, labelbottom=place + columns >= len(lossy))
        about = "total variation from the target, mean over contexts; grey: the other lossy rules"
        figure.supxlabel(about, fontsize=8)
        source = comparison.pair.name or comparison.source
        plotting.heading(figure, f"Speed against bias ({source}, γ = {comparison.gamma})")
        return figure


def _apart(entries: list[Entry], step: float) -> Iterator[tuple[Entry, float]]:
    """The entries from the slowest on, and their heights, raised to be a `step` or more apart."""
    height = -np.inf
    for entry in sorted(entries, key=lambda entry: entry.tokens_per_step):
        height = max(entry.tokens_per_step, height + step)
        yield entry, height


def _draw_lossless(axis: Axes, entries: list[Entry]) -> None:
    """One label for each rule, shifted where labels would overlap, with a line to its value."""
    values = np.array([entry.tokens_per_step for entry in entries])
    step = (values.max() - values.min()) / len(values) if len(values) > 1 else 0.0
    for entry, height in _apart(entries, step):
        axis.plot([0.0, 0.28], [entry.tokens_per_step, height], color="0.6", linewidth=0.6, linestyle="-")
        axis.text(0.3, height, entry.name, fontsize=7, va="center")
    for number, (group, drafts) in enumerate({"chain": "one draft", "tree": "several drafts"}.items()):
        some = [entry.tokens_per_step for entry in entries if entry.group == group]
        if some:
            axis.plot([0.0] * len(some), some, label=drafts, **plotting.points(number))
    axis.set(xlim=(-0.12, 1.9), ylabel="tokens per step", xticks=[])
    axis.locator_params(axis="y", nbins=5)  # few: more have wider labels than there is room for
    axis.set_title("Lossless, TV 0")
    if entries:
        axis.legend(loc="upper left", bbox_to_anchor=(0.0, -0.01), borderaxespad=0.0)


def _draw_lossy(axis: Axes, lossy: dict[str, list[Entry]], name: str) -> None:
    """A line for each parameter of the rule `name`; all other rules as grey points."""
    others = [entry for rule, entries in lossy.items() if rule != name for entry in entries]
    axis.plot(*_places(others), ".", color="0.85", markersize=3.0, zorder=1)
    lines: dict[str, list[Entry]] = {}
    for entry in lossy[name]:
        lines.setdefault(entry.line, []).append(entry)
    for number, (line, entries) in enumerate(lines.items()):
        entries.sort(key=lambda entry: (entry.tv or 0.0, entry.tokens_per_step))
        style = plotting.points(number % len(COLORS)) | {"linestyle": LINES[number % len(LINES)]}
        label = line.partition(", ")[2] or "default values"
        axis.plot(*_places(entries), label=label, linewidth=1.0, markersize=3.5, **style)
    if len(lines) == 1:
        axis.set_title(name, fontsize=8)
        return
    place: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0), "alignment": "left"}
    tight: dict[str, Any] = {"borderaxespad": 0.2, "borderpad": 0.0, "labelspacing": 0.2, "handlelength": 2.0}
    axis.legend(title=name, fontsize=7, title_fontsize=8, **place, **tight)


def _places(entries: Sequence[Entry]) -> tuple[list[float], list[float]]:
    """The values of TV, and the tokens per step."""
    return [entry.tv or 0.0 for entry in entries], [entry.tokens_per_step for entry in entries]


def drafts_figure(found: Iterable[Acceptance], pair: str) -> Figure:
    """Acceptance by number of drafts: simulated points, closed forms (thin), bounds α* (thick lines)."""
    from matplotlib.figure import Figure

    rows = list(found)
    with plotting.figure_style():
        figure = Figure(figsize=(8.3, 4.4))
        axis = figure.subplots()
        for number, way in enumerate(BOUNDS):
            bound = [row for row in rows if row.name == "bound" and row.draft_sampling == way]
            drafts, best = [row.drafts for row in bound], [(row.theory or 0.0) for row in bound]
            (wide, alpha), label = ((2.4, 0.8) if number else (4.8, 0.5)), f"α*, {way}"  # two may coincide
            axis.plot(drafts, best, linewidth=wide, alpha=alpha, label=label, **plotting.curve(number))
        for number, name in enumerate(RULES):
            points = [row for row in rows if row.name == name]
            color = COLORS[BOUNDS.index(points[0].draft_sampling)] if points else COLORS[0]
            simulated = [(row.simulated or 0.0) for row in points]
            errors = [2.0 * (row.error or 0.0) for row in points]
            drafts, marker = [row.drafts for row in points], "osD^v<>"[number]
            axis.errorbar(drafts, simulated, yerr=errors, fmt=marker, color=color, label=name)
            closed = [row for row in points if row.theory is not None]
            drafts, theory = [row.drafts for row in closed], [row.theory or 0.0 for row in closed]
            axis.plot(drafts, theory, color=color, linestyle="-", linewidth=0.7)
        axis.set(ylabel="probability that one of them is accepted", ylim=(0.0, 1.02))
        axis.set_xlabel("drafts K (thin lines: closed forms; colours: how drafts are drawn, as in α*)")
        axis.set_title(f"Acceptance by number of drafts, and its bounds α*: {pair}")
        axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
        return figure
