"""A server beside one that does not speculate, over rates, batches and lengths."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from specsim.core._arguments import checked
from specsim.core._kernels import available_threads
from specsim.core._plotting import axes_or_new
from specsim.core._progress import ShowProgress, shows_progress, told
from specsim.core._provenance import Provenance
from specsim.core._registry import check_known
from specsim.core._streams import RandomSource, root_of
from specsim.core._tables import NONE, Line, Piece, Shown, Table, as_dict, span
from specsim.planning.batch._costs import BatchCost
from specsim.planning.batch._policies import BatchPolicy, Fixed
from specsim.planning.batch._simulate import BatchRun, Estimate, estimate, simulate_batch
from specsim.simulation._executors import Task, workers_of
from specsim.simulation._sweep import swept_values

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: The settings that may be swept.
SETTINGS = ("rate", "max_batch", "prompt", "output", "alpha")


@dataclass(frozen=True, eq=False)
class BatchSweep(Shown):
    """The result of `sweep_batch`: for each setting a run, and one without speculation on the same requests.

    `settings` are the values of `over` that belong to each of `runs` and of `plain`. Of `planned` runs some
    are missing if the sweep was `interrupted`."""

    over: Mapping[str, tuple[Any, ...]]
    settings: tuple[tuple[Any, ...], ...]
    runs: tuple[BatchRun, ...] = field(repr=False)
    plain: tuple[BatchRun, ...] = field(repr=False)
    planned: int
    provenance: Provenance = field(repr=False)

    @property
    def interrupted(self) -> bool:
        """Whether the sweep was ended before all its runs."""
        return len(self.runs) < self.planned

    def speedup(self, number: int) -> Estimate:
        """The time per token of admitted requests without speculation over that with it, of run `number`.

        Replications have the same requests and uniforms, so ratios are taken within them. NaN where either
        queue grows: the servers then have different batches for want of capacity, not of speed."""
        return self._ratio(number, "time_per_token", inverse=True)

    def capacity_gain(self, number: int) -> Estimate:
        """The requests that a full server completes in a second, over those without speculation."""
        return self._ratio(number, "capacity", inverse=False)

    def _ratio(self, number: int, quantity: str, inverse: bool) -> Estimate:
        run, plain = self.runs[number], self.plain[number]
        if quantity != "capacity" and not {run.load, plain.load} <= {"steady", "full"}:
            return Estimate(np.nan, np.nan, np.nan)
        with_it, without = run.values[quantity], plain.values[quantity]
        return estimate(without / with_it if inverse else with_it / without)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain Python values, for JSON."""
        return as_dict(self, "interrupted", records=self.records())

    def records(self) -> list[dict[str, Any]]:
        """A row for each setting: speed-up, gain in capacity, goodput, latency, and the load of both."""
        rows = []
        numbers = {name: all(map(_is_number, values)) for name, values in self.over.items()}
        for number, (values, run, plain) in enumerate(zip(self.settings, self.runs, self.plain, strict=True)):
            given = zip(self.over, values, strict=True)
            row = {name: value if numbers[name] else str(value) for name, value in given}
            ratios = ("speedup", self.speedup(number)), ("capacity_gain", self.capacity_gain(number))
            for name, found in ratios:
                row |= {name: found.mean, f"{name}_low": found.low, f"{name}_high": found.high}
            for prefix, one in (("", run), ("plain_", plain)):
                for name in ("goodput", "mean_batch", "latency_p50", "latency_p99"):
                    row[f"{prefix}{name}"] = one.estimate(name).mean
                row[f"{prefix}load"] = one.load
            rows.append(row)
        return rows

    def parts(self) -> list[Piece]:
        rows = []
        records = self.records()
        any_latency = any("steady" in (row["load"], row["plain_load"]) for row in records)
        for number, (values, row) in enumerate(zip(self.settings, records, strict=True)):
            speedup, gain = self.speedup(number), self.capacity_gain(number)
            ratios = (span(one[1:], "{:.3f}".format) for one in (speedup, gain))
            load = f"{row['load']} / {row['plain_load']}"
            batch = f"{row['mean_batch']:.1f} / {row['plain_mean_batch']:.1f}"
            shown = (f"{value:g}" if isinstance(value, float) else str(value) for value in values)
            latency = [
                NONE if np.isnan(row[name]) else f"{row[name]:.4g}"
                for name in ("latency_p50", "plain_latency_p50")
            ]
            rows.append((*shown, *ratios, batch, *[" / ".join(latency)] * any_latency, load))
        latency_column = ("latency, p50 (s)",) * any_latency
        columns = (*self.over, "speed-up", "gain in capacity", "mean batch", *latency_column, "load")
        run = self.runs[0]
        parts: list[Piece] = [
            Table(columns, rows),
            f"{run.policy} / without speculation, on the same requests; {run.replications} replications of "
            f"{run.requests:,} requests, 95 % intervals, seed {self.provenance.root}",
        ]
        if any("overloaded" in (row["load"], row["plain_load"]) for row in records):
            text = "overloaded: the queue grows without bound, there is no steady latency"
            parts.append(Line(text, "bold yellow"))
        if self.interrupted:
            parts.append(Line(f"interrupted after {len(self.runs)} of {self.planned} runs", "bold yellow"))
        return parts

    def plot(self, ax: Axes | None = None, y: str = "speedup") -> Axes:
        """The speed-up, or "capacity_gain", against the first setting, with 95 % intervals.

        There is a line for each combination of the other settings. Below 1 speculation is slower."""
        check_known("column", y, ("speedup", "capacity_gain"))
        ax = axes_or_new(ax)
        x, *others = self.over
        lines: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for row in self.records():
            lines.setdefault(tuple(row[name] for name in others), []).append(row)
        for marker, (values, rows) in zip("osD^v<>pXP" * len(lines), lines.items(), strict=False):
            named = zip(others, values, strict=True)
            middle = np.array([row[y] for row in rows], dtype=float)
            ax.errorbar(
                [row[x] for row in rows],
                middle,
                yerr=np.array([row[f"{y}_high"] for row in rows], dtype=float) - middle,
                fmt=f"{marker}-",
                capsize=2,
                label=", ".join(f"{name} = {value}" for name, value in named),
            )
        ax.axhline(1.0, color="0.6", linewidth=0.8)
        ax.set(xlabel=x, ylabel=y.replace("_", " ").replace("speedup", "speed-up"))
        if others:
            ax.legend()
        return ax


@checked
@shows_progress("sweep", " runs")
def sweep_batch(
    cost: BatchCost,
    policy: BatchPolicy = Fixed(),  # noqa: B008 - it is frozen
    *,
    over: Mapping[str, Sequence[Any]],
    rng: RandomSource = None,
    threads: int | None = None,
    executor: Executor | str | None = None,
    progress: ShowProgress = None,
    **settings: Any,
) -> BatchSweep:
    """Compare a server with one that does not speculate, for every combination of some settings.

    Both have the same requests, and the same uniforms in every step.

    Parameters
    ----------
    cost : BatchCost
        The seconds of an iteration.
    policy : BatchPolicy
        It chooses the draft lengths of each iteration.
    over : mapping
        Values by name: of "rate", "max_batch", "prompt", "output" or "alpha".
    rng, threads, progress
        As in `simulate_batch`; progress in runs.
    executor : Executor or str, optional
        As in `specsim.simulate`: runs the settings side by side. The result does not depend on it.
    **settings
        Other settings of `simulate_batch`.

    Returns
    -------
    BatchSweep
        Ctrl-C gives the runs so far.

    Raises
    ------
    ValueError, TypeError
        For a setting that cannot be swept, no value, and as in `simulate_batch`.

    Examples
    --------
    >>> from specsim.planning.batch import Fixed, preset, sweep_batch
    >>> settings = {"alpha": 0.5, "prefill": False, "requests": 2560, "rng": 1}
    >>> found = sweep_batch(preset("llama-8b"), Fixed(4), over={"max_batch": [1, 256]}, **settings)
    >>> found.capacity_gain(0).mean > 1 > found.capacity_gain(1).mean
    True
    """
    started, root = time.perf_counter(), root_of(rng)
    values = swept_values(over, "rate")
    for name in values:
        check_known("setting", name, SETTINGS)
        if settings.get(name) is not None:
            raise ValueError(f"over: {name} is given as a setting too; leave out one of the two")
        if name in ("prompt", "output") and settings.get("log") is not None:
            raise ValueError(f"over: {name} has no effect on a log, which has the requests")
    combinations = [*product(*values.values())]
    made = [settings | dict(zip(values, one, strict=True)) | {"rng": root} for one in combinations]
    found: dict[int, tuple[BatchRun, BatchRun]] = {}
    report = told(progress)
    try:
        for number, both in _both_of(made, cost, policy, executor, threads):
            found[number] = both
            if report is not None:
                report(len(found), len(made))
    except KeyboardInterrupt:
        if not found:
            raise
    provenance = Provenance.record(root, available_threads(threads), time.perf_counter() - started)
    done = sorted(found)
    shown = tuple(combinations[number] for number in done)
    runs, plain = zip(*(found[number] for number in done), strict=True)
    return BatchSweep(values, shown, runs, plain, len(made), provenance)


def _both_of(
    made: list[dict[str, Any]],
    cost: BatchCost,
    policy: BatchPolicy,
    executor: Executor | str | None,
    threads: int | None,
) -> Iterator[tuple[int, tuple[BatchRun, BatchRun]]]:
    """The number of each of the settings `made` and its two runs, as they are done."""
    with workers_of(executor, threads) as workers:
        if workers is None:
            for number, options in enumerate(made):
                yield number, _run_both(number, cost, policy, options | {"threads": threads})
            return
        tasks = iter(
            [Task(_run_both, (number, cost, policy, one | {"threads": 1})) for number, one in enumerate(made)]
        )
        for task, _, both in workers.results(lambda: next(tasks, None)):
            yield task.arguments[0], both


def _run_both(
    number: int, cost: BatchCost, policy: BatchPolicy, options: Mapping[str, Any]
) -> tuple[BatchRun, BatchRun]:
    """The server with `policy`, and the one that does not speculate; workers tell tasks by their number."""
    return simulate_batch(cost, policy, **options), simulate_batch(cost, Fixed(0), **options)


def _is_number(value: Any) -> bool:
    """Whether tables and axes take a value as it is; a column with laws has all values in words."""
    return isinstance(value, int | float)
