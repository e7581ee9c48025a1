"""Rank known mistakes: likelihood and fit of predictions, fitted parameters, and the resulting diagnosis."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy

from specsim.auditing._cases.battery import Case
from specsim.auditing._diagnosis.predictions import Prediction, predict
from specsim.auditing._results import Candidate, Diagnosis
from specsim.auditing.mutants import Mutant
from specsim.core._types import Floats, Ints
from specsim.rules._common.base import Parameter

#: Nats by which the likeliest mistake must lead, and the least p-value of a fit.
SEPARATE, FIT = 5.0, 1e-4
#: Expected count below which cells are merged.
MIN_EXPECTED = 8.0
#: Values of a parameter on the grid, and evaluations between the neighbours of the best one.
GRID, TRIALS = 48, 16


@dataclass(frozen=True)
class Scored:
    """A mutant with fitted parameters, its log-likelihood, and the p-value of its fit to the counts."""

    mutant: Mutant
    log_likelihood: float
    fit: float


def score_mutant(mutant: Mutant, cases: Sequence[Case], outcomes: Sequence[Ints]) -> Scored | None:
    """Score `mutant` over `cases`; None if it breaks the contract. A fitted parameter costs ½ log n."""
    total, statistic, df, impossible = 0.0, 0.0, 0, False
    for case, counts in zip(cases, outcomes, strict=True):
        prediction = predict(mutant, case)
        if prediction is None:
            return None
        total += _log_likelihood(prediction, counts)
        x2, cells, never = _misfit(prediction, counts)
        statistic, df, impossible = statistic + x2, df + cells, impossible or never
    steps = sum(int(counts.sum()) for counts in outcomes)
    total -= 0.5 * np.log(max(steps, 1)) * min(1, len(mutant.parameters))
    return Scored(mutant, total, 0.0 if impossible else fit_of(statistic, df))


def fit_parameter(mutant: Mutant, cases: Sequence[Case], outcomes: Sequence[Ints]) -> Mutant:
    """`mutant` with the value of its first parameter that maximises the likelihood."""
    if not mutant.parameters or mutant.law is None:
        return mutant
    parameter = mutant.parameters[0]
    exact = [(case, counts) for case, counts in zip(cases, outcomes, strict=True) if not case.rotated]

    def loss(value: float) -> float:
        candidate = mutant.with_parameters(**{parameter.name: value})
        return -sum(_log_likelihood(predict(candidate, case), counts) for case, counts in exact)

    return mutant.with_parameters(**{parameter.name: likeliest(parameter, loss)})


class OutOfTime(Exception):
    """A diagnosis has reached its deadline."""


def check_time(deadline: float) -> None:
    """Raise OutOfTime after `deadline`, a time of `time.monotonic`."""
    if time.monotonic() > deadline:
        raise OutOfTime


def fit_of(statistic: float, df: int) -> float:
    """The p-value of a misfit; 1 without degrees of freedom."""
    return float(scipy.special.chdtrc(df, statistic)) if df else 1.0


def likeliest(parameter: Parameter, loss: Callable[[float], float]) -> float:
    """The value of least loss, on a grid (the law of a threshold has steps), then between its neighbours."""
    low, high = parameter.low, min(parameter.high, max(4.0 * parameter.default, 4.0))
    if parameter.whole:
        values = np.unique(np.geomspace(max(low, 1.0), high, GRID).round())
        return float(min(values, key=loss))
    margin = 1e-6 * (high - low)
    grid = np.linspace(low + margin, high - margin, GRID)
    losses = [loss(value) for value in grid]
    best = int(np.argmin(losses))
    bounds = grid[max(best - 1, 0)], grid[min(best + 1, GRID - 1)]
    found = scipy.optimize.minimize_scalar(loss, bounds=bounds, method="bounded", options={"maxiter": TRIALS})
    return float(found.x if found.fun <= losses[best] else grid[best])


def sort_ranking(ranking: Iterable[Scored]) -> list[Scored]:
    """Sort: mistakes that fit first, by decreasing likelihood."""
    return sorted(ranking, key=lambda one: (one.fit < FIT, -one.log_likelihood))


def merge_rankings(first: Sequence[Scored], fitting: Sequence[Scored]) -> list[Scored]:
    """Merge the scores of all mistakes on a `first` part with those of the `fitting` ones on everything.

    Mistakes that do not fit stay as far behind the likeliest as on the first part."""
    best = max(one.log_likelihood for one in first)
    top = max((one.log_likelihood for one in fitting), default=best)
    others = (replace(one, log_likelihood=top + one.log_likelihood - best) for one in first if one.fit < FIT)
    return sort_ranking([*fitting, *others])


def alike(ranking: Sequence[Scored]) -> list[Scored]:
    """The mistakes that fit and are within `SEPARATE` nats of the likeliest, which comes first."""
    best = ranking[0].log_likelihood
    return [one for one in ranking if one.fit >= FIT and best - one.log_likelihood < SEPARATE]


def _log_likelihood(prediction: Prediction | None, counts: Ints) -> float:
    """The log-likelihood of counts given the drafted paths; simulated laws add half a count to each cell."""
    assert prediction is not None
    law = prediction.law
    if prediction.draws is not None:
        draws = prediction.draws[:, None, None]
        law = (law * draws + 0.5) / (draws + 0.5 * law[0].size)
    seen = counts > 0
    return float(counts[seen] @ np.log(np.maximum(law[seen], 1e-12)))


def _misfit(prediction: Prediction, counts: Ints) -> tuple[float, int, bool]:
    """(chi-square, degrees of freedom, whether the impossible occurred), cells merged within a path."""
    statistic, df, never = 0.0, 0, False
    for code, observed in enumerate(counts.reshape(len(counts), -1)):
        n, law = int(observed.sum()), prediction.law[code].reshape(-1)
        exact = prediction.draws is None
        noise = 1.0 if exact else 1.0 + n / max(int(prediction.draws[code]), 1)  # type: ignore[index]
        x2, cells = misfit_of(observed, law)
        never = never or (exact and bool((observed[law < 1e-12] > 0).any()))
        statistic, df = statistic + x2 / noise, df + cells
    return statistic, df, never


def misfit_of(observed: Ints, law: Floats) -> tuple[float, int]:
    """(chi-square, degrees of freedom) of counts against their law, with rare cells merged."""
    n = int(observed.sum())
    if n < 2 * MIN_EXPECTED:
        return 0.0, 0
    expected = n * law
    large = expected >= MIN_EXPECTED
    cells = [(float(o), float(e)) for o, e in zip(observed[large], expected[large], strict=True)]
    rest = float(observed[~large].sum()), float(expected[~large].sum())
    if rest[1] >= MIN_EXPECTED or (rest[0] > 0 and not cells):
        cells.append(rest)
    elif cells:
        o, e = cells.pop()
        cells.append((o + rest[0], e + rest[1]))
    return sum((o - e) ** 2 / e for o, e in cells) if len(cells) > 1 else 0.0, len(cells) - 1


def conclude(ranking: Sequence[Scored], exact: Mutant, steps: int, evidence: str, place: str) -> Diagnosis:
    """The diagnosis of a ranking: unknown if nothing fits, or if `exact` fits as well."""
    named, best = alike(ranking), ranking[0].log_likelihood
    wrong = [one for one in ranking if one.mutant.name != exact.name]
    candidates = [
        Candidate(str(m), m.family, m.mechanism, m.threads, float(best - one.log_likelihood), one.fit >= FIT)
        for one, m in ((one, one.mutant) for one in wrong)
    ]
    if not named or any(one.mutant.name == exact.name for one in named):
        return Diagnosis((), tuple(candidates[:5]), steps, "", "")
    return Diagnosis(tuple(candidates[: len(named)]), tuple(candidates[:5]), steps, evidence, place)
