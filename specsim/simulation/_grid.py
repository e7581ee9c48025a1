"""Runs over a grid of settings, and what comes of each.

`sweep` and `compare` are views of it, and in `specsim.planning` `compare_methods` and `batch.sweep_batch`."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from specsim.core._kernels import available_threads
from specsim.core._plotting import Axes, axes_or_new
from specsim.core._progress import ShowProgress, working
from specsim.core._provenance import Provenance
from specsim.core._registry import check_known
from specsim.core._tables import Line, Piece, Shown, Table
from specsim.core._types import Floats
from specsim.core.distributions import check_rows
from specsim.models import Model, Tree, chain, chains
from specsim.models._base import shared_contexts
from specsim.rules import Rule
from specsim.simulation._executors import Task, workers_of
from specsim.simulation._sources import NO_DRAFT
from specsim.traces._reader import Trace

R = TypeVar("R")
#: The most contexts for mean total variation, since declared laws are computed in Python.
CONTEXTS = 256


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


def draft_for(rule: Rule, gamma: int, drafts: int) -> Tree:
    drawing = rule.draft_sampling[0]
    return chains(drafts, gamma, drawing) if rule.claimed_on_trees else chain(gamma, drawing)


def tv_of(rule: Rule, rows: Callable[[], tuple[Floats, Floats]]) -> float | None:
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


def context_rows(target: Any, draft: Any) -> tuple[Floats, Floats]:
    """Rows of target and draft at up to `CONTEXTS` contexts where steps begin, evenly spaced."""
    if isinstance(target, Trace):
        _, p, q = target.steps(_some(np.arange(target.num_steps)))
        return p[:, 0], q[:, 0]
    if not isinstance(target, Model):
        if draft is None:
            raise TypeError(NO_DRAFT)
        p, q = np.atleast_2d(check_rows(target, "target"), check_rows(draft, "draft"))
        if p.shape != q.shape:
            raise ValueError(f"draft: shape {q.shape}, the target has {p.shape}; give both one shape")
        return _some(p), _some(q)
    some = _some(shared_contexts(target, draft))
    return target.rows(some), draft.rows(some)


def _some(contexts: Any) -> Any:
    return contexts[:: -(-len(contexts) // CONTEXTS)]
