"""The likelihood of a mistake whose parameters are unknown: the mean over their values, and the likeliest.

Where the usual values are about as likely as any, they are taken: of a threshold, all values between two
probabilities have one law in small cases, and another one where there are more tokens."""

from collections.abc import Callable, Sequence

import numpy as np

from specsim.auditing._diagnosis.likelihood import log_mean_exp
from specsim.core._parameters import Parameter

#: Values of a single parameter on the grid, of each of several, and the rounds of refinement at most.
GRID, GRID_OF_SEVERAL, ROUNDS = 40, 13, 9
#: Nats by which a peak may fall to the neighbours of its best value, and to the default that is taken for it.
SMOOTH = 1.0
#: A default below which a parameter may have any magnitude: half its grid is geometric, over these decades.
SMALL, DECADES = 1e-2, 10
#: A whole parameter has all numbers up to the first of these, and powers of two from as many bits on.
FEW_NUMBERS, MANY_BITS = 64, 8
#: Significant digits of the likeliest value.
DIGITS = 4

Values = dict[str, float]


def marginalise(
    parameters: Sequence[Parameter], log_likelihood: Callable[[Values], float], points: int | None = None
) -> tuple[float, Values]:
    """(logarithm of the mean likelihood, the likeliest values, or the defaults if these are about as likely).

    The prior is uniform over the intervals of a grid; the mean is the integral by trapezoids, refined round
    the likeliest value (the law of a threshold has steps, which a grid finds and a search does not)."""
    most = GRID if len(parameters) < 2 else GRID_OF_SEVERAL
    mean, values = _marginalise(parameters, log_likelihood, min(points or most, most))
    usual = {one.name: one.default for one in parameters}
    as_likely = usual != values and log_likelihood(usual) >= log_likelihood(values) - SMOOTH
    return mean, usual if as_likely else values


def _marginalise(
    parameters: Sequence[Parameter], log_likelihood: Callable[[Values], float], points: int
) -> tuple[float, Values]:
    if not parameters:
        return log_likelihood({}), {}
    first, *others = parameters
    known: dict[float, tuple[float, Values]] = {}

    def at(value: float) -> float:
        value = float(f"{value:.{DIGITS}g}")
        if value not in known:
            own = {first.name: value}
            known[value] = _marginalise(others, lambda rest: log_likelihood(own | rest), points)
        return known[value][0]

    grid = _grid(first, points)
    mean = log_mean_exp([at(value) for value in grid]) if first.whole else _integral(at, grid)
    best = max(known, key=lambda value: known[value][0])
    return mean, {first.name: best} | known[best][1]


def as_likely(
    parameters: Sequence[Parameter], log_likelihood: Callable[[Values], float], values: Values, points: int
) -> list[Values]:
    """Other values that are about as likely: in fewer digits, then at most `points` of the first."""
    if not parameters:
        return []
    (first, *others), least = parameters, log_likelihood(values) - SMOOTH
    usual = values | {one.name: one.default for one in others}
    bases = [usual, values] if usual != values else [values]
    grid = [base | {first.name: value} for base in bases for value in _grid(first, GRID)]
    found: list[Values] = []
    for one in (_rounded(parameters, values, digits) for digits in range(1, DIGITS)):
        if one not in (values, *found) and log_likelihood(one) >= least:
            found.append(one)
    more = [one for one in grid if one not in (values, *found) and log_likelihood(one) >= least]
    return found + more[:: max(1, -(-len(more) // points))]


def _rounded(parameters: Sequence[Parameter], values: Values, digits: int) -> Values:
    """`values` in this number of significant digits, where that is not an end of a parameter's range."""
    shorter = {one.name: float(f"{values[one.name]:.{digits}g}") for one in parameters}
    return values | {
        one.name: shorter[one.name] for one in parameters if one.low < shorter[one.name] < one.high
    }


def few_values(parameters: Sequence[Parameter], points: int) -> list[Values]:
    """Values over the range of the first parameter, the others at their defaults; one entry without any."""
    if not parameters:
        return [{}]
    return [{parameters[0].name: value} for value in _grid(parameters[0], points)]


def _grid(parameter: Parameter, points: int) -> list[float]:
    """Values over the range of a parameter, in order; an unbounded one ends at four times its default."""
    low, high = parameter.low, min(parameter.high, max(4.0 * parameter.default, 4.0))
    if parameter.whole and high >= 2**MANY_BITS:  # a size
        return [2.0**power for power in range(int(np.log2(high)) + 1) if 2**power >= low]
    if parameter.whole and high <= FEW_NUMBERS:
        return np.arange(low, high + 1.0).tolist()
    if parameter.whole:
        return np.unique(np.geomspace(max(low, 1.0), high, points).round()).tolist()
    margin = 1e-6 * (high - low)
    if not 0.0 < parameter.default < SMALL:
        return np.linspace(low + margin, high - margin, points).tolist()
    low, high = low + margin, min(parameter.high, 1.0) - margin
    small = np.geomspace(high * 10.0**-DECADES, low + 0.5 / points, points // 2)
    return np.unique(np.concatenate([small, np.linspace(low + 1.0 / points, high, points)])).tolist()


def _integral(log_likelihood: Callable[[float], float], grid: Sequence[float]) -> float:
    """log of the mean of exp(log_likelihood) over the intervals of a grid."""

    def value(x: float) -> float:
        return float(np.interp(x, np.arange(len(grid)), grid))

    found = {float(x): log_likelihood(value(x)) for x in range(len(grid))}
    for _ in range(ROUNDS):
        places = sorted(found)
        best = max(range(len(places)), key=lambda i: found[places[i]])
        around = [i for i in (best - 1, best + 1) if 0 <= i < len(places)]
        if all(found[places[best]] - found[places[i]] <= SMOOTH for i in around):
            break
        for i in around:
            x = (places[best] + places[i]) / 2.0
            found[x] = log_likelihood(value(x))
    places = sorted(found)
    widths = np.diff(places) / (places[-1] - places[0])
    weights = (np.append(widths, 0.0) + np.append(0.0, widths)) / 2.0
    return log_mean_exp([found[x] for x in places], weights)
