"""The parts of the laws of mistakes: a correct verifier's law whose parts can be replaced.

The parts are those of `specsim.rules._common.tokenwise.law`, with rows as sequences of Fractions or floats.
All parts get the mistake's values."""

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from itertools import accumulate, pairwise
from numbers import Rational
from typing import Any

import numpy as np

from specsim.core._types import Row, Rows, StepLaw
from specsim.core.distributions import temperature as at_temperature
from specsim.rules._common import tokenwise
from specsim.rules._common.tokenwise import normalise, positive_part, stop_law

#: law(parents, tokens, p, q, **values), see `Mistake`.
Law = Callable[..., StepLaw]
Part = Callable[..., Any]


def minimum_ratio(p: Row, q: Row, x: int, **values: Any) -> Any:
    """The chance of accepting x: min(1, p/q); with q = 0 any token with p > 0 passes."""
    return min(1, p[x] / q[x]) if q[x] else int(p[x] > 0)


def residual(p: Row, q: Row, x: int | None = None, **values: Any) -> list[Any]:
    """(p - q)₊, normalised; p where that is nothing."""
    return positive_part(p, q)


def law(accept: Part = minimum_ratio, recovered: Part = residual, bonus: Part | None = None) -> Law:
    """The law of a verifier that decides each position from its own rows."""
    return tokenwise.law("a mistake", accept, recovered, bonus)


def law_of_last(row_law: Part) -> Law:
    """The law of standard tests, and a last token from row_law(row, **values) of the right row."""
    return law(
        recovered=lambda p, q, x, **values: row_law(residual(p, q), **values),
        bonus=lambda p, q, **values: row_law(p, **values),
    )


def ratios(tokens: Sequence[int], p: Rows, q: Rows, **values: Any) -> list[Any]:
    return [minimum_ratio(*rows) for rows in zip(p, q, tokens, strict=False)]


def under_one_uniform(limits: Iterable[Any], p: Rows) -> list[Any]:
    """The chances that one uniform is below each of `limits`, given that it was below those before."""
    whole = 1 + 0 * p[0][0]  # of the kind of p: an int over an int would be a float
    least = pairwise(accumulate(limits, min, initial=whole))
    return [after / before if before else 0 * after for before, after in least]


def follow_rows(tokens: Sequence[int], p: Rows, q: Rows, **values: Any) -> list[Row]:
    return [*(residual(*rows) for rows in zip(p, q, strict=False)), p[-1]]


def of_chain(step: Part) -> Law:
    """The law of a verifier of chains, from step(tokens, p, q, **values)."""

    def of_a_step(parents: Sequence[int], tokens: Sequence[int], p: Rows, q: Rows, **values: Any) -> StepLaw:
        tokenwise.require_chain("a mistake", parents)
        return step(tokens, p, q, **values)

    return of_a_step


def chain_law(chances: Part = ratios, follow: Part = follow_rows) -> Law:
    """The law of a verifier that looks at other positions too.

    chances(tokens, p, q, **values) gives the γ probabilities of passing, each given that the ones before
    passed; follow(tokens, p, q, **values) the γ + 1 pmfs of the token after each number of accepted ones."""
    found = of_chain(lambda *rows, **values: (stop_law(chances(*rows, **values)), follow(*rows, **values)))
    found.in_order = True  # type: ignore[attr-defined]  # for `sequence_law`
    return found


def as_given(weights: Iterable[float], like: Row) -> list[Any]:
    """Floats computed with exp, log or rounding, as numbers of the kind of `like`, normalised."""
    return normalise([Fraction(w) if isinstance(like[0], Rational) else w for w in map(float, weights)])


def by_rows(change: Callable[..., Any]) -> Part:
    """The law of a row from a function of rows [R, V], which gets its values as floats."""

    def of_row(row: Row, **values: Any) -> list[Any]:
        numbers = {name: float(value) for name, value in values.items()}
        return as_given(change(np.array([row], dtype=np.float64), **numbers)[0], row)

    return of_row


#: A row at a `temperature`: ∝ row^(1/temperature).
apply_temperature = by_rows(lambda rows, temperature: at_temperature(rows, temperature))
