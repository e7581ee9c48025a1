"""The rows of the table of published values, and the reading of printed numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from fractions import Fraction
from itertools import product
from typing import Any

from experiments.literature.published.values import FIGURES, Figure

__all__ = ["Row", "compare", "figure_at", "first_number", "half_unit", "numbers", "rounded", "row_of"]


@dataclass(frozen=True)
class Row:
    """A published value, the recomputed one (None where there is none), recomputed - published, and the
    verdict.
    """

    paper: str
    where: str
    quantity: str
    published: str
    recomputed: float | None
    difference: float | None
    verdict: str
    note: str = ""

    @property
    def units(self) -> float | None:
        """The difference in units of the last published digit; None where there is none, or no such unit."""
        words = self.published.split()
        if self.difference is None or len(words) > 1 or "/" in words[0]:
            return None
        return self.difference / (2.0 * rounded(words[0])[1])

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain Python values."""
        return {**asdict(self), "units": self.units}


def figure_at(where: str, quantity: str) -> Figure:
    """The one of `FIGURES` at this place.

    >>> figure_at("Figure 2a", "rejections in T = 50 tokens").printed
    '16.41'
    """
    return next(figure for figure in FIGURES if (figure.where, figure.quantity) == (where, quantity))


def numbers(figure: Figure) -> list[float]:
    """All that is printed.

    >>> numbers(Figure("", "", "", "1/4 .5"))
    [0.25, 0.5]
    """
    return [float(Fraction(word)) for word in figure.printed.split()]


def half_unit(figure: Figure) -> float:
    """Half a unit of the last digit printed; 0 for a fraction."""
    return rounded(figure.printed.split()[0])[1]


def first_number(figure: Figure) -> tuple[float, float]:
    """The first number printed, and half a unit of its last digit.

    >>> first_number(Figure("", "", "", "1.5 2.5"))
    (1.5, 0.05)
    """
    return rounded(figure.printed.split()[0])


def rounded(word: str) -> tuple[float, float]:
    """What is printed, and half a unit of its last digit; 0 for a fraction."""
    return float(Fraction(word)), 0.0 if "/" in word else 0.5 * 10.0 ** -len(word.partition(".")[2])


def compare(
    figure: Figure, function: Callable[..., float], *inputs: tuple[float, float], note: str = ""
) -> Row:
    """`function` of inputs (value, half a unit), at the values and at the corners of their rounding
    intervals.

    It must be monotone in each input, so that the corners have the extremes.
    """
    published, half = first_number(figure)
    value = function(*(centre for centre, _ in inputs))
    corners = [
        function(*corner) for corner in product(*((centre - unit, centre + unit) for centre, unit in inputs))
    ]
    slack = half + 1e-12
    if abs(value - published) <= slack:
        verdict = "reproduced"
    elif min(corners) - slack <= published <= max(corners) + slack:
        verdict = "within rounding"
    else:
        verdict = "not reproducible"
    return row_of(figure, value, value - published, verdict, note)


def row_of(
    figure: Figure,
    recomputed: float | None = None,
    difference: float | None = None,
    verdict: str = "inputs unavailable",
    note: str = "",
) -> Row:
    """The row of a figure, which without more has no value and the verdict "inputs unavailable"."""
    return Row(
        figure.paper, figure.where, figure.quantity, figure.printed, recomputed, difference, verdict, note
    )
