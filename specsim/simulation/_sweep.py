"""Simulate over the values of some settings: rule parameters, γ, or how rows are processed."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any

from numpy.typing import ArrayLike

from specsim import rules
from specsim.core._arguments import checked
from specsim.core._plotting import Axes
from specsim.core._progress import ShowProgress
from specsim.core._registry import check_known
from specsim.core._streams import RandomSource, root_of
from specsim.core._tables import Piece
from specsim.models import Model, Pair
from specsim.models._processed import SAMPLING, sampled
from specsim.simulation._grid import Swept, combinations, context_rows, run_grid, show_tv, swept_values, tv_of
from specsim.simulation._result import Simulation
from specsim.simulation._simulate import simulate
from specsim.simulation._sources import pair_of
from specsim.theory._acceptance import RATES
from specsim.traces._reader import Trace

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
