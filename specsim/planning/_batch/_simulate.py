"""Simulate a server, and what it attains, with intervals over independent replications."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike

from specsim.core._files import read_table
from specsim.core._kernels import available_threads
from specsim.core._plotting import Axes, axes_or_new
from specsim.core._progress import ShowProgress, shows_progress, told
from specsim.core._provenance import Provenance
from specsim.core._streams import Key, RandomSource, key_of, root_of
from specsim.core._tables import CONFIDENCE, NONE, Line, Piece, Shown, Table, as_dict, span
from specsim.core._types import Floats, Ints, check_count, check_known, checked, count_of
from specsim.planning._batch._costs import BatchCost
from specsim.planning._batch._kernel import TOTALS, Setup, serve
from specsim.planning._batch._policies import AnyPolicy, Constant, for_kernel, spec_of
from specsim.planning._batch._requests import Beta, Drawn, Geometric, LoggedLengths, RequestLog, Workload
from specsim.simulation._grid import Swept, combinations, most_of, run_grid, swept_values

#: The share of requests at each end of a replication that is not counted, and the number of batches, if that
#: is more: the first batch begins at once, and stays in step for a while.
UNCOUNTED, UNCOUNTED_BATCHES = 0.1, 2
#: The largest batch, and how many batches of requests a replication needs.
MOST_BATCH, BATCHES = 65_536, 10
#: Seconds that a run may last, beside which a pass still counts.
LONGEST_RUN = 1e15
PERCENTILES = (50, 90, 99)
#: What loads mean, but for those of a server that is full, or steady and settled.
LOADS: dict[str, str] = read_table("meanings")["loads"]
#: What is measured: {name: (in words, unit)}. Those in `QUEUE` have no limit where the queue grows.
QUANTITIES: dict[str, tuple[str, str]] = read_table("quantities")
QUEUE = ("wait", "first_token", "latency", *(f"latency_p{percent}" for percent in PERCENTILES))


class Estimate(NamedTuple):
    """A mean over replications, and the ends of its 95 % interval (Student's t)."""

    mean: float
    low: float
    high: float


def estimate(values: Floats) -> Estimate:
    """The mean of values of independent replications, with its interval; NaN where any is."""
    mean, quantile = float(values.mean()), scipy.stats.t.ppf(0.5 + CONFIDENCE / 2, len(values) - 1)
    reach = float(quantile * values.std(ddof=1) / math.sqrt(len(values)))
    return Estimate(mean, mean - reach, mean + reach)


@dataclass(frozen=True, eq=False)
class BatchRun(Shown):
    """The result of `simulate_batch`.

    `load` is "steady"; "overloaded" where requests arrive faster than a full server completes them;
    "critical" where the capacity is not known well enough to tell; "full" without a rate."""

    policy: str
    max_batch: int
    work: Workload = field(repr=False)  #: what arrives: rate or log, lengths and acceptance
    prefill: bool
    rate: float | None  #: requests a second, of a log on average; None where all are there from the beginning
    requests: int  #: of each replication
    load: str
    settled: bool  #: whether latency grows along the run no more than chance explains
    #: {quantity: a value for each replication}, times in seconds; NaN for a missing one.
    values: Mapping[str, Floats] = field(repr=False)
    #: [γ + 1] steps of all replications by their drafted tokens, without those in which requests join.
    drafts: tuple[int, ...] = field(repr=False)
    cost: BatchCost = field(repr=False)
    provenance: Provenance = field(repr=False)

    @property
    def replications(self) -> int:
        """The number of independent replications."""
        return len(self.values["goodput"])

    def estimate(self, quantity: str) -> Estimate:
        """A quantity of `values`, such as "goodput", with its interval."""
        return estimate(self.values[quantity])

    @property
    def gamma_mean(self) -> float:
        """Drafted tokens of a step."""
        return float(np.arange(len(self.drafts)) @ self.drafts) / max(1, sum(self.drafts))

    @property
    def gamma_mode(self) -> int:
        """The most frequent number of drafted tokens of a step."""
        return int(np.argmax(self.drafts))

    @property
    def verdict(self) -> str:
        """What `load` means, in a sentence; empty where the server is steady and settled."""
        load = "growing" if self.load == "steady" and not self.settled else self.load
        return LOADS.get(load, "").format(rate=self.rate, capacity=self.estimate("capacity").mean)

    def to_dict(self) -> dict[str, Any]:
        more = {"work": str(self.work), "estimates": {row["quantity"]: row for row in self.records()}}
        return as_dict(self, "replications", "verdict", "gamma_mean", "gamma_mode", without=("cost",), **more)

    def records(self) -> list[dict[str, Any]]:
        """A row for each quantity: its mean, and the ends of its 95 % interval."""
        return [{"quantity": name} | self.estimate(name)._asdict() for name in self.values]

    def parts(self) -> Iterator[Piece]:
        rows = []
        for name in self.values:
            text, unit = QUANTITIES[name]
            mean, low, high = (1e3 * one if unit == "ms" else one for one in self.estimate(name))
            if not math.isnan(mean):
                rows.append((text, f"{mean:.4g}", f"{low:.4g} – {high:.4g}" if low < high else NONE, unit))
        goodput = f"{self.load}: {self.estimate('goodput').mean:.4g} tokens/s"
        goodput += f", mean latency {self.estimate('latency').mean:.4g} s" * (self.load == "steady")
        style = "bold red" if self.load == "overloaded" else "bold yellow" if self.verdict else "bold"
        yield Line(self.verdict or goodput, style)
        yield Table(("", "mean", "95 % interval", ""), rows)
        arrive = "all there from the start" if self.rate is None else f"{self.rate:.4g} arrive in a second"
        yield f"{self.work}{'' if self.prefill else ', cached before they arrive'}"
        yield (
            f"policy {self.policy}, at most {self.max_batch:,} at once; {self.replications} replications of "
            f"{self.requests:,} requests, {arrive}; seed {self.provenance.root}"
        )
        if self.gamma_mean != self.gamma_mode:
            yield f"drafted tokens of a step: {self.gamma_mean:.4g} on average, most often {self.gamma_mode}"

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw latency percentiles with their intervals, if the server is steady."""
        ax = axes_or_new(ax)
        found = [self.estimate(f"latency_p{percent}") for percent in PERCENTILES]
        if self.load == "steady":
            middle = [one.mean for one in found]
            reach = [one.high - one.mean for one in found]
            ax.errorbar([f"p{percent}" for percent in PERCENTILES], middle, yerr=reach, fmt="o", capsize=3)
            ax.set_ylim(bottom=0.0)
        else:
            ax.text(0.5, 0.5, "no steady latency", ha="center", transform=ax.transAxes)
        ax.set(ylabel="latency (s)", title=f"{self.policy}, {self.load}")
        return ax


@checked
@shows_progress("batch", " replications")
def simulate_batch(
    cost: BatchCost,
    policy: AnyPolicy = Constant(4),  # noqa: B008 - its state is not used
    *,
    rate: float | None = None,
    log: RequestLog | None = None,
    alpha: ArrayLike | Beta | LoggedLengths = 0.8,
    prompt: int | Geometric = 512,
    output: int | Geometric = 128,
    max_batch: int = 32,
    prefill: bool = True,
    requests: int | str = 2000,
    replications: int = 8,
    rng: RandomSource = None,
    threads: int | None = None,
    progress: ShowProgress = None,
) -> BatchRun:
    """Simulate a server that decodes many requests at once.

    Requests wait in one queue, first come first served. An iteration makes one draft pass for each token of
    the longest draft, over the requests that draft that far, and one pass of the target over all drafted
    tokens and one more of each request. It starts with the requests that have arrived by then, at most
    `max_batch`, and ends for all of them together. Tokens after the end of an output are dropped. Caches fit,
    so that no request is preempted.

    Parameters
    ----------
    cost : BatchCost
        The seconds of an iteration.
    policy : Constant, Goodput, Budget, Blocks, Bands, Classifier, Heuristic or Oracle
        It chooses the draft lengths of each iteration.
    rate : float, optional
        Requests per second of a Poisson process. By default all are there at the start: the server is full.
    log : RequestLog, optional
        Arrivals and lengths, in place of `rate`, `prompt`, `output` and `requests`.
    alpha : float, array_like, Beta or LoggedLengths
        Accepted / tested tokens: one rate; one for each position, the last also for later ones; one for each
        request; or accepted lengths of a log. `alpha_of` converts numbers as engines print them.
    prompt, output : int or Geometric
        Tokens of a prompt and of an output.
    max_batch : int
        Requests that are decoded at once, at most.
    prefill : bool
        Whether a request joins with its prompt: the passes of its first iteration are over the prompt too,
        and it emits one token without a draft. Else caches are there, as where other machines make them.
    requests, replications : int
        Requests of each of the independent replications; the first and last tenth, or two batches if that is
        more, are not counted.
    rng, threads, progress
        As in `specsim.simulate`. A seed gives every server the same requests, and the same uniforms to their
        steps; another rate stretches the arrivals.

    Returns
    -------
    BatchRun

    Raises
    ------
    ValueError, TypeError
        For arguments out of range.

    References
    ----------
    SmartSpec, arXiv 2406.14066, for batches whose requests accept different numbers of tokens.

    Examples
    --------
    >>> from specsim.planning import Constant, preset, simulate_batch
    >>> run = simulate_batch(preset("llama-8b"), Constant(4), rate=100.0, requests=400, rng=1)
    >>> run.load
    'overloaded'
    """
    started, root = time.perf_counter(), root_of(rng)
    if not isinstance(cost, BatchCost):
        raise TypeError(f"cost: expected a BatchCost, got {type(cost).__name__}; try preset('llama-8b')")
    _, parameters = for_kernel(policy)
    work = Workload(rate, log, prompt, output, alpha, count_of("requests", requests))
    prefill = bool(prefill)
    check_count("max_batch", max_batch, most=MOST_BATCH)
    check_count("replications", replications, 2, 10_000)
    if work.count < BATCHES * max_batch:
        least = f"give at least {BATCHES * max_batch:,}, {BATCHES} batches"
        raise ValueError(f"requests: {work.count:,} are too few for batches of {max_batch:,}; {least}")
    survival = work.survival(int(parameters[0]), spec_of(policy))
    stop = np.zeros(1, dtype=np.int64)
    passes = cost.target.coefficients(), cost.draft.coefficients(), cost.seen
    setup = Setup(survival, *passes, max_batch, prefill, *for_kernel(policy))
    workers, report = available_threads(threads), told(progress)
    found: list[dict[str, Any]] = []
    with ThreadPoolExecutor(min(workers, replications)) as pool:
        keys = [key_of(root, (number,)) for number in range(replications)]
        try:
            for one in pool.map(lambda key: _replicate(cost, setup, stop, work, key), keys):
                found.append(one)
                report(len(found), replications)
        except BaseException:
            stop[0] = 1  # the threads end too
            raise
    values = {name: np.array([one[name] for one in found]) for name in (*QUANTITIES, "half_1", "half_2")}
    halves = values.pop("half_2") - values.pop("half_1")
    lasted = 0.0 if log is None else float(np.ptp(np.asarray(log.arrival)))
    average = rate if log is None else (len(log) - 1) / lasted if lasted > 0.0 else None
    load = _load(average, estimate(values["capacity"]))
    if load != "steady":
        values |= {name: np.full(replications, np.nan) for name in QUEUE}
    return BatchRun(
        policy=spec_of(policy),
        max_batch=max_batch,
        work=work,
        prefill=prefill,
        rate=average,
        requests=work.count,
        load=load,
        settled=not estimate(halves).low > 0.05 * float(values["latency"].mean()),
        values=values,
        drafts=tuple(sum(one["drafts"] for one in found).tolist()),
        cost=cost,
        provenance=Provenance.record(root, workers, time.perf_counter() - started),
    )


def _serve(
    drawn: Drawn, setup: Setup, key: Key, stop: Ints, edge: int, until_counted: bool
) -> tuple[Floats, dict[str, Any]]:
    """The times [3, n] of requests (started, first token, finished), and totals less `edge` at each end."""
    count = len(drawn.arrivals)
    times, totals = np.zeros((3, count)), np.zeros(len(TOTALS))
    drafts = np.zeros(int(setup.parameters[0]) + 1, dtype=np.int64)
    serve(drawn, setup, (edge, count - 1 - edge, until_counted), key, stop, *times, totals, drafts)
    return times, {**dict(zip(TOTALS, totals.tolist(), strict=True)), "drafts": drafts}


def _replicate(cost: BatchCost, setup: Setup, stop: Ints, work: Workload, key: Key) -> dict[str, Any]:
    drawn = work.draw(key)
    count = len(drawn.arrivals)
    alone = cost.target.seconds(1, 1)
    if drawn.arrivals[-1] * 2.0**-52 > 1e-6 * alone:
        raise ValueError(
            f"rate: arrivals in {drawn.arrivals[-1]:.3g} seconds leave no digits for passes of {alone:.3g}; "
            "simulate fewer requests, or a higher rate"
        )
    edge = max(int(UNCOUNTED * count), UNCOUNTED_BATCHES * setup.max_batch)
    (started, first, finished), totals = _serve(drawn, setup, key, stop, edge, until_counted=False)
    if not finished.max() < LONGEST_RUN:
        longest = f"more than {LONGEST_RUN:g} seconds in all"
        raise ValueError(f"cost: iterations take {longest}; check bandwidth, arithmetic and caches")
    full = totals
    if drawn.arrivals[-1] > 0.0:
        _, full = _serve(drawn._replace(arrivals=np.zeros(count)), setup, key, stop, edge, until_counted=True)
    # by tokens, since the requests that a window cuts are not equally far at its ends
    capacity = full["tokens"] / full["seconds"] / float(drawn.outputs.mean())
    counted = slice(edge, count - edge)
    started, first, finished, arrivals = (one[counted] for one in (started, first, finished, drawn.arrivals))
    latency = finished - arrivals
    half = len(latency) // 2
    return {
        "drafts": totals["drafts"],
        "goodput": totals["tokens"] / totals["seconds"],
        "request_rate": capacity if full is totals else totals["finished"] / totals["seconds"],
        "capacity": capacity,
        "tokens_per_pass": totals["tokens"] / totals["request_steps"],
        "alpha_drafted": totals["accepted"] / totals["drafted"] if totals["drafted"] else math.nan,
        "time_per_token": float((finished - started).sum() / drawn.outputs[counted].sum()),
        "utilisation": totals["busy"] / totals["seconds"],
        "mean_batch": totals["batch_seconds"] / totals["busy"],
        "wait": float(np.mean(started - arrivals)),
        "first_token": float(np.mean(first - arrivals)),
        "latency": float(latency.mean()),
        "half_1": float(latency[:half].mean()),
        "half_2": float(latency[half:].mean()),
        **{f"latency_p{percent}": float(np.percentile(latency, percent)) for percent in PERCENTILES},
    }


def _load(rate: float | None, capacity: Estimate) -> str:
    """A queue that is never empty drains at the capacity: it grows if more requests arrive."""
    if rate is None:
        return "full"
    if rate < capacity.low:
        return "steady"
    return "overloaded" if rate > capacity.high else "critical"


# A server beside one that does not speculate, over rates, batches and lengths.

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
