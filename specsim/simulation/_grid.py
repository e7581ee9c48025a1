"""Runs over a grid of settings, and what comes of each.

`sweep` and `compare` are views of it, and in `specsim.planning` `compare_methods` and `batch.sweep_batch`."""

import gc
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from threading import Event
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from specsim import rules
from specsim.core._kernels import available_threads, kept_mark
from specsim.core._plotting import Axes, axes_or_new
from specsim.core._processes import calling
from specsim.core._progress import ShowProgress, working
from specsim.core._provenance import Provenance
from specsim.core._streams import RandomSource, root_of
from specsim.core._tables import Line, Piece, Shown, Table
from specsim.core._types import Floats, check_known, checked
from specsim.core.distributions import synthetic_pair
from specsim.models import Model, Pair, TableModel, Tree, chain, chains
from specsim.models._processed import SAMPLING, sampled
from specsim.models._trained_pairs import default_pair
from specsim.rules import Rule, get, names
from specsim.simulation._executors import Task, workers_of
from specsim.simulation._result import Simulation
from specsim.simulation._simulate import simulate
from specsim.simulation._sources import FewContextsSource, context_rows, make_source, pair_of
from specsim.theory._acceptance import RATES
from specsim.traces._reader import Trace

R = TypeVar("R")


def swept_values(over: Mapping[str, Sequence[Any]], example: str = "gamma") -> dict[str, tuple[Any, ...]]:
    """The values of each setting. Raises TypeError, with `example` as a setting, unless there are some."""
    if not isinstance(over, Mapping) or not over:
        raise TypeError(f'over: has no setting; give a mapping such as {{"{example}": [1, 2, 4]}}')
    found = {}
    for name, values in over.items():
        if isinstance(values, str) or not isinstance(values, Sequence | np.ndarray) or not len(values):
            raise TypeError(f"over: {name} has no sequence of values; give one, such as [0.5, 1]")
        found[name] = tuple(value.item() if isinstance(value, np.generic) else value for value in values)
    return found


def combinations(values: Mapping[str, tuple[Any, ...]]) -> list[dict[str, Any]]:
    """The settings of each run: all combinations of their values, those of the last setting first."""
    return [dict(zip(values, one, strict=True)) for one in product(*values.values())]


class Ran(NamedTuple, Generic[R]):
    """The results of the runs of a grid, by number; fewer than `planned` after Ctrl-C."""

    found: dict[int, R]
    planned: int
    provenance: Provenance

    @property
    def rows(self) -> tuple[R, ...]:
        return tuple(self.found.values())

    @property
    def interrupted(self) -> bool:
        return len(self.found) < self.planned


def run_grid(
    run: Callable[[Any, int | None], R],
    settings: Sequence[Any],
    label: str,
    unit: str,
    *,
    root: int,
    threads: int | None,
    progress: ShowProgress,
    executor: Executor | str | None = None,
) -> Ran[R]:
    """Call `run(setting, threads)` for each of `settings`, in turn or on an executor, until Ctrl-C."""
    started, found = time.perf_counter(), dict[int, R]()
    with working(progress, label, unit) as work:
        try:
            for number, one in _results(run, settings, threads, executor):
                found[number] = one
                work.report(len(found), len(settings))
        except KeyboardInterrupt:
            if not (work.outermost and found):
                raise
    provenance = Provenance.record(root, available_threads(threads), time.perf_counter() - started)
    return Ran(dict(sorted(found.items())), len(settings), provenance)


def _results(
    run: Callable[[Any, int | None], R],
    settings: Sequence[Any],
    threads: int | None,
    executor: Executor | str | None,
) -> Iterator[tuple[int, R]]:
    """The number and the result of each run, as each is done."""
    with workers_of(executor, threads) as workers:
        if workers is None:
            yield from ((number, run(one, threads)) for number, one in enumerate(settings))
            return
        numbers = {Task(run, (one, 1)): number for number, one in enumerate(settings)}
        tasks = iter(numbers)
        for task, _, one in workers.results(lambda: next(tasks, None)):
            yield numbers[task], one


@dataclass(frozen=True, eq=False)
class Swept(Shown):
    """Runs for all combinations of the values of some settings, `over`."""

    over: Mapping[str, tuple[Any, ...]]  #: the settings and their values
    settings: tuple[tuple[Any, ...], ...]  #: the values of each run
    runs: tuple[Any, ...] = field(repr=False)
    planned: int  #: runs; some are missing if the sweep was `interrupted`
    provenance: Provenance = field(repr=False)
    derived = ("interrupted",)

    @property
    def interrupted(self) -> bool:
        """Whether the sweep was ended before all its runs."""
        return len(self.runs) < self.planned

    def _table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
        shown = [
            (*(f"{value:g}" if isinstance(value, float) else str(value) for value in values), *row)
            for values, row in zip(self.settings, rows, strict=True)
        ]
        return Table((*self.over, *columns), shown)

    def _interruption(self) -> list[Piece]:
        text = f"interrupted after {len(self.runs)} of {self.planned} runs"
        return [Line(text, "bold yellow")] * self.interrupted

    def _draw(
        self,
        ax: Axes | None,
        x: str | None,
        y: str,
        label: str,
        error: Callable[[dict[str, Any]], float] | None,
    ) -> Axes:
        """Draw the column `y` of `records` over a setting, a line for each combination of others."""
        x = next(iter(self.over)) if x is None else x
        check_known("setting", x, list(self.over))
        ax, others = axes_or_new(ax), [name for name in self.over if name != x]
        written = {name: "γ" if name == "gamma" else name for name in self.over}
        lines: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for row in self.records():
            if row[y] is not None:
                lines.setdefault(tuple(row[name] for name in others), []).append(row)
        for marker, (values, rows) in zip("osD^v<>pXP" * len(lines), lines.items(), strict=False):
            ax.errorbar(
                [row[x] for row in rows],
                [row[y] for row in rows],
                yerr=None if error is None else [error(row) for row in rows],
                fmt=marker + "-" * all(isinstance(row[x], int | float) for row in rows),
                capsize=2,
                label=", ".join(
                    f"{written[one]} = {value}" for one, value in zip(others, values, strict=True)
                ),
            )
        ax.set(xlabel=written[x], ylabel=label)
        if others:
            ax.legend(fontsize="small")
        return ax


class Compared(Shown):
    """Rules or systems on one pair, an entry for each; subclasses have the fields."""

    entries: tuple[Any, ...]
    interrupted: bool
    long, listed = 16, "entries"

    def _parts(self, what: str, *pieces: Piece) -> list[Piece]:
        return [*[Line(f"interrupted: the {what} so far", "bold yellow")] * self.interrupted, *pieces]


def most_of(what: str, unit: str, values: Mapping[str, float]) -> Line:
    """The largest of `values` in a line."""
    if not values:
        return Line(f"no {what}", "bold")
    best = max(values, key=values.__getitem__)
    return Line(f"{best}: {values[best]:.4f} {unit}, the most of {len(values)} {what}", "bold")


def draft_for(rule: rules.Rule, gamma: int, drafts: int) -> Tree:
    drawing = rule.draft_sampling[0]
    return chains(drafts, gamma, drawing) if rule.claimed_on_trees else chain(gamma, drawing)


def tv_of(rule: rules.Rule, rows: Callable[[], tuple[Floats, Floats]]) -> float | None:
    """The mean total variation of the declared law from rows of p; 0 if lossless, None if not known."""
    if rule.control or rule.looks_ahead:
        return None
    if rule.declared is None:
        return 0.0
    total, (p, q) = 0.0, rows()
    for p_row, q_row in zip(p, q, strict=True):
        law = rule.declared(p_row.tolist(), q_row.tolist(), 0, **rule.values)
        total += math.fsum(np.abs(np.array(law, dtype=np.float64) - p_row)) / 2.0
    return round(total / len(p), 15)


def show_tv(tv: float | None) -> str:
    """Total variation with four decimals; 0 for a lossless rule, – for none."""
    return "–" if tv is None else f"{tv:.4f}" if tv else "0"


# Simulate over the values of some settings: rule parameters, γ, or how rows are processed.

#: What a run has in a row of the table: its rates, the errors of those that have one, and its steps.
COLUMNS = [
    *(one for rate in RATES for one in (rate, f"{rate}_error") if one == rate or hasattr(Simulation, one)),
    "steps",
]


@dataclass(frozen=True, eq=False)
class Sweep(Swept):
    """The result of `sweep`: a simulation for each combination of values, with the same random numbers."""

    runs: tuple[Simulation, ...] = field(repr=False)
    #: The mean total variation of each from the target; 0 if lossless, None where the rule has no true claim.
    tvs: tuple[float | None, ...] = field(repr=False)

    def records(self) -> list[dict[str, Any]]:
        """A row for each run: its settings, tokens per step and α with standard errors, and TV."""
        return [
            dict(zip(self.over, values, strict=True))
            | {name: getattr(run, name) for name in COLUMNS}
            | {"tv": tv}
            for values, run, tv in zip(self.settings, self.runs, self.tvs, strict=True)
        ]

    def parts(self) -> list[Piece]:
        rows = []
        for row in self.records():
            mean = f"{row['tokens_per_step']:.4f} ± {row['tokens_per_step_error']:.4f}"
            alpha = f"{row['alpha_verified']:.4f} ± {row['alpha_verified_error']:.4f}"
            rows.append((mean, f"{row['alpha_context']:.4f}", alpha, show_tv(row["tv"])))
        parts = [self._table(("tokens/step", "α context", "α verified", "TV"), rows), *self._interruption()]
        if self.runs:
            run = self.runs[0]
            seed = f"seed {self.provenance.root}"
            parts.append(f"{run.pair.name or run.source}, {run.steps:,} steps of each run, {seed}")
        return parts

    def plot(self, ax: Axes | None = None, y: str = "tokens_per_step", x: str | None = None) -> Axes:
        """Draw a column of `records` against the setting `x`, by default the first, ± 2 standard errors.

        Each combination of the other settings has a line. `y` may also be alpha_context, alpha_verified,
        alpha_drafted or tv."""
        check_known("column", y, (*RATES, "tv"))
        words = y.replace("_", " ").replace("alpha", "α")
        error, label = f"{y}_error", "total variation" if y == "tv" else words
        return self._draw(ax, x, y, label, (lambda row: 2.0 * row[error]) if error in COLUMNS else None)


@checked
def sweep(
    target: ArrayLike | Model | Trace | Pair,
    draft: ArrayLike | Model | None = None,
    *,
    over: Mapping[str, Sequence[Any]],
    rule: str | rules.Rule = "standard",
    gamma: int = 5,
    steps: int | str = 100_000,
    rng: RandomSource = None,
    threads: int | None = None,
    executor: Executor | str | None = None,
    progress: ShowProgress = None,
) -> Sweep:
    """Simulate for every combination of the values of some settings.

    Parameters
    ----------
    target, draft : array_like, Model, Trace or Pair
        As for `simulate`.
    over : mapping
        Values by name: of a parameter of the rule, of "gamma" or "rule", or of "temperature", "top_k",
        "top_p" and "min_p" of both models.
    rule, gamma
        The rule and the number of drafted tokens where `over` has no others.
    steps, rng, threads, executor
        Of each run, as in `simulate`.
    progress : bool or callable, optional
        As in `simulate`, in runs.

    Returns
    -------
    Sweep
        Ctrl-C gives the runs so far.

    Raises
    ------
    ValueError, TypeError
        For a setting that does not exist, no value, and as in `simulate`.

    Examples
    --------
    >>> pair = [0.5, 0.3, 0.2], [0.2, 0.3, 0.5]
    >>> found = sweep(*pair, rule="lenience", over={"lenience": [0.5, 1.0]}, steps=1000, rng=1)
    >>> [(row["lenience"], round(row["tv"], 3)) for row in found.records()]
    [(0.5, 0.2), (1.0, 0.0)]
    """
    root, pair, values = root_of(rng), pair_of(target, draft), swept_values(over)
    cells = [_cell(pair, rule, gamma, setting) for setting in combinations(values)]
    work: dict[str, Any] = {"steps": steps, "rng": root, "executor": executor}

    def one_of(cell: tuple[Pair, rules.Rule, int], threads: int | None) -> tuple[Simulation, float | None]:
        pair, rule, gamma = cell
        run = simulate(pair, rule=rule, gamma=gamma, **work, threads=threads)
        return run, tv_of(rule, partial(context_rows, *pair))

    ran = run_grid(one_of, cells, "sweep", " runs", root=root, threads=threads, progress=progress)
    if "rule" in values:
        values["rule"] = tuple(map(str, values["rule"]))
    settings = tuple(product(*values.values()))[: len(ran.rows)]
    runs, tvs = zip(*ran.rows, strict=True)
    return Sweep(values, settings, runs, len(cells), ran.provenance, tvs)


def _cell(
    pair: Pair, rule: str | rules.Rule, gamma: int, setting: dict[str, Any]
) -> tuple[Pair, rules.Rule, int]:
    """The pair, the rule and γ of one combination of values."""
    chosen, gamma = rules.get(setting.pop("rule", rule)), setting.pop("gamma", gamma)
    own = [parameter.name for parameter in chosen.parameters]
    known = (*own, "gamma", "rule", *SAMPLING)
    for name in (name for name in setting if name not in known):
        every = map(rules.get, rules.names())
        if owners := ", ".join(rule.name for rule in every if name in [one.name for one in rule.parameters]):
            raise ValueError(
                f"over: {name} is not a setting of {chosen.name}; give one of the rules {owners}"
            )
        check_known(f"setting of {chosen.name}", name, known)
    of_rule = {name: value for name, value in setting.items() if name in own}
    sampling = {name: value for name, value in setting.items() if name not in own}
    chosen = chosen.with_parameters(**of_rule)
    return _processed(pair, sampling) if sampling else pair, chosen, gamma


def _processed(pair: Pair, sampling: Mapping[str, Any]) -> Pair:
    if isinstance(pair.target, Trace):
        name = next(iter(sampling))
        raise ValueError(f"over: a trace has no rows at another {name}; give two models")
    own = [part.partition("=")[0] for part in (pair.name or "").rpartition(":")[2].split(",") if "=" in part]
    first = min(map(SAMPLING.index, sampling))
    if later := [name for name in own if name in SAMPLING and SAMPLING.index(name) >= first]:
        raise ValueError(
            f"over: {SAMPLING[first]} comes before the {later[0]} of {pair.name}; give {later[0]} in over too"
        )
    both = [sampled(one, **sampling) for one in pair]
    if pair.name is None:
        return Pair(both[0], both[1])
    options = ",".join(f"{name}={value}" for name, value in sampling.items())
    named = "=" in pair.name.rpartition(":")[2]  # options follow the last colon
    return Pair(both[0], both[1], f"{pair.name}{',' if named else ':'}{options}")


# Compile the kernels of many rules in processes beside the run, since numba uses one core of each.

#: Fewer rules are compiled sooner than processes start.
FEWEST = 4
#: Pairs for which other kernels are compiled: of models, of models that read few contexts, and of pmfs.
KINDS: dict[str, Callable[[], Sequence[Any]]] = {
    "rows": default_pair,
    "few contexts": lambda: (TableModel(np.eye(8) / 2 + 1 / 16), TableModel(np.full((8, 8), 1 / 8))),
    "fixed pair": lambda: synthetic_pair("zipf", 8, 0.5, rng=0),
}


def _kind_of(pair: Pair) -> str:
    if isinstance(pair.target, Model) and isinstance(pair.draft, Model):
        few = isinstance(make_source(*pair, rule="standard", gamma=1), FewContextsSource)
        return "few contexts" if few else "rows"
    return "rows" if isinstance(pair.target, Model | Trace) or np.ndim(pair.target) > 1 else "fixed pair"


def _missing(kind: str, rules: Iterable[str]) -> dict[str, Path]:
    """By the name of a built-in rule, the mark that is to say that its kernels are on disk."""
    marks = {name: kept_mark(f"{kind} {name}") for name in rules if name in names()}
    return {name: mark for name, mark in marks.items() if mark is not None and not mark.exists()}


@contextmanager
def compiling(
    rules: Iterable[Rule], pair: Pair | str, threads: int | None = None, executor: Any = None
) -> Iterator[Callable[[str], None]]:
    """Within this, processes compile what is not on disk yet of built-in `rules` for a pair, or a kind, the
    last ones first; not if workers of an `executor` compile for themselves. The body runs the first ones, and
    calls what it is given with the name of each."""
    kind = _kind_of(pair) if isinstance(pair, Pair) else pair
    missing = _missing(kind, [one.name for one in rules if executor in (None, "threads")])
    waiting = list(missing) if len(missing) >= FEWEST and sys.executable else []
    processes = min(available_threads(threads) - 1, len(waiting) // 2)
    command, pipes = calling(_compile_asked, kind), {"stdin": PIPE, "stdout": PIPE, "stderr": DEVNULL}
    shared = Event()  # the first rule compiles what most need

    def ask(child: "Popen[str]") -> None:
        assert child.stdout is not None
        with suppress(OSError, IndexError), child:  # one that has ended leaves the rules to the run
            shared.wait()
            while True:
                name = waiting.pop()
                print(name, file=child.stdin)
                if child.stdout.readline():
                    missing[name].touch(mode=0o600)

    def ran(name: str) -> None:
        shared.set()
        with suppress(OSError, KeyError, ValueError):
            missing[name].touch(mode=0o600)
            waiting.remove(name)

    children: list[Popen[str]] = []
    with ThreadPoolExecutor(max(processes, 1)) as pool:
        try:
            for _ in range(processes):
                children.append(Popen(command, text=True, bufsize=1, **pipes))  # type: ignore[call-overload]
                pool.submit(ask, children[-1])
            yield ran
        finally:
            waiting.clear()
            shared.set()
            for child in children:
                child.kill()


def compile_rules(kind: str, threads: int | None = None) -> None:
    """Compile what is not on disk yet of all built-in rules for a kind of pairs."""
    missing = _missing(kind, names())
    with working(None, "compile", " rules") as work, compiling(map(get, missing), kind, threads) as ran:
        for done, name in enumerate(_compiled(kind, missing), 1):
            ran(name)
            work.report(done, len(missing))


def _compiled(kind: str, asked: Iterable[str]) -> Iterator[str]:
    """Compile the rules of these names, and give each name."""
    pair = Pair(*KINDS[kind]())
    for rule in (get(name.strip()) for name in asked):
        simulate(pair, rule=rule, gamma=draft_for(rule, 2, 2), steps=1000, rng=0, threads=1)
        yield rule.name


def _compile_asked(kind: str) -> None:
    """Compile each rule named on standard input, and answer with its name."""
    gc.disable()  # little of what a compiler makes is garbage
    for name in _compiled(kind, sys.stdin):
        print(name, flush=True)
