"""A server beside one that does not speculate, over rates, batches and lengths."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from specsim.core._plotting import Axes
from specsim.core._progress import ShowProgress
from specsim.core._streams import RandomSource, root_of
from specsim.core._tables import NONE, Line, Piece, as_dict, span
from specsim.core._types import check_known, checked
from specsim.planning._batch._costs import BatchCost
from specsim.planning._batch._policies import AnyPolicy, Constant
from specsim.planning._batch._simulate import BatchRun, Estimate, estimate, simulate_batch
from specsim.simulation._grid import Swept, combinations, most_of, run_grid, swept_values

#: The settings that may be swept.
SETTINGS = ("rate", "max_batch", "prompt", "output", "alpha")


@dataclass(frozen=True, eq=False)
class BatchSweep(Swept):
    """The result of `sweep_batch`: by setting, runs with and without speculation on the same requests."""

    runs: tuple[BatchRun, ...] = field(repr=False)
    plain: tuple[BatchRun, ...] = field(repr=False)  #: without speculation

    def speedup(self, number: int) -> Estimate:
        """The time per token of admitted requests without speculation over that with it, of run `number`.

        Replications have the same requests and uniforms, so ratios are taken within them. NaN where a queue
        grows: the servers then have different batches for want of capacity, not of speed."""
        run, plain = self.runs[number], self.plain[number]
        if not {run.load, plain.load} <= {"steady", "full"}:
            return Estimate(np.nan, np.nan, np.nan)
        return estimate(plain.values["time_per_token"] / run.values["time_per_token"])

    def capacity_gain(self, number: int) -> Estimate:
        """The requests that a full server completes in a second, over those without speculation."""
        return estimate(self.runs[number].values["capacity"] / self.plain[number].values["capacity"])

    def to_dict(self) -> dict[str, Any]:
        return as_dict(self, "interrupted", records=self.records())

    def records(self) -> list[dict[str, Any]]:
        """A row for each setting: speed-up, gain in capacity, goodput, latency, and the load of both."""
        rows = []
        #: Tables and axes take numbers; a column with distributions has all values in words.
        numbers = {k for k, some in self.over.items() if all(isinstance(x, int | float) for x in some)}
        for number, (values, run, plain) in enumerate(zip(self.settings, self.runs, self.plain, strict=True)):
            given = zip(self.over, values, strict=True)
            row = {name: value if name in numbers else str(value) for name, value in given}
            ratios = ("speedup", self.speedup(number)), ("capacity_gain", self.capacity_gain(number))
            for name, found in ratios:
                row |= {name: found.mean, f"{name}_low": found.low, f"{name}_high": found.high}
            for prefix, one in (("", run), ("plain_", plain)):
                for name in ("goodput", "mean_batch", "latency_p50", "latency_p99"):
                    row[f"{prefix}{name}"] = one.estimate(name).mean
                row[f"{prefix}load"] = one.load
            rows.append(row | {"gamma_mean": run.gamma_mean, "gamma_mode": run.gamma_mode})
        return rows

    def parts(self) -> list[Piece]:
        rows = []
        records = self.records()
        adapts = any(run.gamma_mean != run.gamma_mode for run in self.runs)
        any_latency = any("steady" in (row["load"], row["plain_load"]) for row in records)
        for number, row in enumerate(records):
            speedup, gain = self.speedup(number), self.capacity_gain(number)
            ratios = (span(one[1:], "{:.3f}".format) for one in (speedup, gain))
            load = f"{row['load']} / {row['plain_load']}"
            batch = f"{row['mean_batch']:.1f} / {row['plain_mean_batch']:.1f}"
            both = row["latency_p50"], row["plain_latency_p50"]
            latency = [NONE if np.isnan(one) else f"{one:.4g}" for one in both]
            gamma = f"{row['gamma_mean']:.2f} / {row['gamma_mode']}"
            rows.append((*ratios, *[gamma] * adapts, batch, *[" / ".join(latency)] * any_latency, load))
        gamma_column = ("γ, mean / most often",) * adapts
        latency_column = ("latency, p50 (s)",) * any_latency
        run, fast = self.runs[0], "times as fast as without speculation"
        columns = ("speed-up", "gain in capacity", *gamma_column, "mean batch", *latency_column, "load")
        table, gains = self._table(columns, rows), dict[str, float]()
        for cells, row in zip(table.rows, records, strict=True):
            name = ", ".join(f"{name}={cell}" for name, cell in zip(self.over, cells, strict=False))
            gains |= {} if np.isnan(row["speedup"]) else {name: row["speedup"]}
        parts: list[Piece] = [
            most_of("servers that keep up", fast, gains),
            table,
            f"{run.policy} / without speculation, on the same requests; {run.replications} replications of "
            f"{run.requests:,} requests, 95 % intervals, seed {self.provenance.root}",
        ]
        if any("overloaded" in (row["load"], row["plain_load"]) for row in records):
            text = "overloaded: the queue grows without bound, there is no steady latency"
            parts.append(Line(text, "bold yellow"))
        return parts + self._interruption()

    def plot(self, ax: Axes | None = None, y: str = "speedup", x: str | None = None) -> Axes:
        """Draw the speed-up, or "capacity_gain", against `x`, by default the first setting, with intervals.

        Each combination of the other settings has a line. Below 1 speculation is slower."""
        check_known("column", y, ("speedup", "capacity_gain"))
        label = y.replace("_", " ").replace("speedup", "speed-up")
        ax = self._draw(ax, x, y, label, lambda row: row[f"{y}_high"] - row[y])
        ax.axhline(1.0, color="0.6", linewidth=0.8)
        return ax


@checked
def sweep_batch(
    cost: BatchCost,
    policy: AnyPolicy = Constant(4),  # noqa: B008 - its state is not used
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
    policy : Constant, Goodput, Budget, …
        As in `simulate_batch`.
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
    >>> from specsim.planning import Constant, preset, sweep_batch
    >>> settings = {"alpha": 0.5, "prefill": False, "requests": 2560, "rng": 1}
    >>> found = sweep_batch(preset("llama-8b"), Constant(4), over={"max_batch": [1, 256]}, **settings)
    >>> found.capacity_gain(0).mean > 1 > found.capacity_gain(1).mean
    True
    """
    root, values = root_of(rng), swept_values(over, "rate")
    for name in values:
        check_known("setting", name, SETTINGS)
        if settings.get(name) is not None:
            raise ValueError(f"over: {name} is given as a setting too; leave out one of the two")
        if name in ("prompt", "output") and settings.get("log") is not None:
            raise ValueError(f"over: {name} has no effect on a log, which has the requests; leave it out")
    made = [settings | {"rng": root} | one for one in combinations(values)]
    how: dict[str, Any] = {"threads": threads, "executor": executor, "progress": progress}
    ran = run_grid(partial(_run_both, cost, policy), made, "sweep", " runs", root=root, **how)
    shown = tuple(tuple(made[number][name] for name in values) for number in ran.found)
    runs, plain = zip(*ran.rows, strict=True)
    return BatchSweep(values, shown, runs, len(made), ran.provenance, plain)


def _run_both(
    cost: BatchCost, policy: AnyPolicy, settings: dict[str, Any], threads: int | None
) -> tuple[BatchRun, BatchRun]:
    options = settings | {"threads": threads}
    return simulate_batch(cost, policy, **options), simulate_batch(cost, Constant(0), **options)
