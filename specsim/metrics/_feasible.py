"""Linear statements about unknown counts, and the values that they allow.

A form is Σ coefficient · unknown, {unknown: coefficient}; a statement is form ≤ 0. "one" is the unknown that
turns a number into a form: unknowns are determined up to a common factor, which fixing `one` sets (or the
steps, if no count was reported). The range of a ratio is found by fixing its denominator instead (Charnes &
Cooper, 1962).
"""

import math
from collections.abc import Sequence

import numpy as np
from scipy.optimize import linprog

from specsim.metrics._intervals import Range

Form = dict[str, float]

#: The value of the fixed form: large against the solver's absolute tolerance of 1e-7.
SIZE = 1e6
#: By how much a statement may be violated; relative to `SIZE` 1e-11.
TOLERANCE = 1e-5
#: Decimals of a value of that size which the tolerance leaves exact.
DIGITS = 4


def plus(*forms: Form) -> Form:
    """The sum of forms.

    >>> plus({"accepted": 1}, {"steps": 1}, {"accepted": 2})
    {'accepted': 3, 'steps': 1}
    """
    total: Form = {}
    for form in forms:
        for name, coefficient in form.items():
            total[name] = total.get(name, 0) + coefficient
    return total


def times(factor: float, form: Form) -> Form:
    """`factor` · `form`."""
    return {name: factor * coefficient for name, coefficient in form.items()}


def minus(left: Form, right: Form) -> Form:
    """`left` − `right`."""
    return plus(left, times(-1, right))


class Program:
    """Unknowns ≥ 0 under the kept statements. `largest` is the largest reported count, 0 without any."""

    def __init__(self, largest: float) -> None:
        self.unit: Form = {"one": 1} if largest else {"steps": 1}  # what values are measured in
        self.error = 1e-9 * (largest or 1)  # how far off a value may be
        self._fixed = SIZE / (largest or 1)  # what `unit` is set to
        self._kept: list[Form] = []
        self._solved: dict[object, float] = {}  # by form and unit; each costs a few milliseconds

    def keep(self, *statements: Form) -> None:
        """Keep form ≤ 0 for each of `statements`."""
        self._kept += statements
        self._solved.clear()

    def allows(self, *statements: Form) -> bool:
        """Whether form ≤ 0 is possible, for each of `statements` alone."""
        return all(self._solve(form, self.unit) <= TOLERANCE for form in statements)

    def feasible(self, over: Form | None = None) -> bool:
        """Whether any values are left; with `over`, any at which that form is not 0."""
        return self._solve({}, over or self.unit) > -math.inf

    def least(self, form: Form, over: Form | None = None) -> float:
        """The smallest value of `form`, or of its ratio to `over`; −inf if unbounded."""
        found = self._solve(form, over or self.unit)
        return round(round(found, DIGITS) / (SIZE if over else self._fixed), 9) + 0.0

    def most(self, form: Form, over: Form | None = None) -> float:
        """The largest value, inf if unbounded."""
        return 0.0 - self.least(times(-1, form), over)

    def range(self, form: Form, over: Form | None = None) -> Range:
        """From `least` to `most`."""
        return Range(self.least(form, over), self.most(form, over))

    def _solve(self, form: Form, unit: Form) -> float:
        """The least value of `form` with `unit` fixed; −inf if unbounded or infeasible."""
        key = (*form.items(), None, *unit.items())
        if key in self._solved:
            return self._solved[key]
        names = sorted({"one", *form, *unit, *(name for kept in self._kept for name in kept)})
        found = linprog(
            _row(form, names),
            A_ub=np.array([_row(kept, names) for kept in self._kept]) if self._kept else None,
            b_ub=np.full(len(self._kept), TOLERANCE) if self._kept else None,
            A_eq=_row(unit, names)[None],
            b_eq=[self._fixed if unit is self.unit else SIZE],
            bounds=(0, None),
            method="highs",
        )
        self._solved[key] = float(found.fun) if found.status == 0 else -math.inf
        return self._solved[key]


def _row(form: Form, names: Sequence[str]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array([form.get(name, 0.0) for name in names])
