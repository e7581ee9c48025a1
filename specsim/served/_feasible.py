"""Linear statements about unknown counts, and the values that they allow.

A form is Σ coefficient · unknown, {unknown: coefficient}; a statement is form ≤ 0. The unknown "one" turns a
number into a form: unknowns are known up to a common factor, which fixing `one` sets (or the steps, if no
count was reported). Fixing a ratio's denominator instead gives its range (Charnes & Cooper, 1962)."""

import math
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from numbers import Integral
from typing import NamedTuple

import numpy as np
from scipy.optimize import milp

Form = dict[str, float]

#: The value of the fixed form: large against the solver's absolute tolerance of 1e-7.
SIZE = 1e6
#: By how much a statement may be violated, 1e-11 of `SIZE`, and the decimals that this leaves exact.
TOLERANCE, DIGITS = 1e-5, 4


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
    return {name: factor * coefficient for name, coefficient in form.items()}


def minus(left: Form, right: Form) -> Form:
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

    def range(self, form: Form, over: Form | None = None) -> "Range":
        return Range(self.least(form, over), self.most(form, over))

    def _solve(self, form: Form, unit: Form) -> float:
        """The least value of `form` with `unit` fixed; −inf if unbounded or infeasible."""
        key = (*form.items(), None, *unit.items())
        if key in self._solved:
            return self._solved[key]
        names = sorted({"one", *form, *unit, *(name for kept in self._kept for name in kept)})
        rows = np.array([_row(one, names) for one in (*self._kept, unit)])
        fixed = self._fixed if unit is self.unit else SIZE
        low, high = np.full((2, len(rows)), [[-np.inf], [TOLERANCE]])
        low[-1] = high[-1] = fixed
        # no unknown is declared whole: the solver and the numbers of `linprog`, without its copies
        found = milp(_row(form, names), constraints=(rows, low, high))
        self._solved[key] = float(found.fun) if found.status == 0 else -math.inf
        return self._solved[key]


def _row(form: Form, names: Sequence[str]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array([form.get(name, 0.0) for name in names])


# Reported numbers as intervals: exact for counts, else the values that round to the printed digits.

#: Kinds of reported numbers: counts of a run; whole numbers; numbers in [0, 1]; positive times in one unit.
COUNTS = ("steps", "drafted", "accepted", "emitted", "bonus")
WHOLE = (*COUNTS, "gamma", "requests")
RATES = ("acceptance_rate", "by_position")
TIMES = ("draft_time", "target_time", "step_time")

#: Uncertainty of a float: relative, absolute below 1.
FLOAT_ERROR = 1e-9
#: Magnitudes of numbers that are believed, as powers of ten; floats hold all of them, and their quotients.
SMALLEST, LARGEST = -100, 18

Value = str | int | float


class Range(NamedTuple):
    """The closed interval from `low` to `high`; either may be infinite.

    Examples
    --------
    >>> print(Range(20, 20), Range(3.855, 3.865), Range(8, math.inf))
    20 3.855 to 3.865 at least 8
    """

    low: float
    high: float

    def __str__(self) -> str:
        if math.isinf(self.high):
            return "any" if math.isinf(self.low) else f"at least {number(self.low)}"
        if math.isinf(self.low):
            return f"at most {number(self.high)}"
        ends = number(self.low), number(self.high)
        return ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"


def number(value: float) -> str:
    """A whole number in full, any other with six digits or one decimal."""
    if abs(value - round(value)) < 1e-9 * max(100, abs(value)):
        return f"{round(value):,}"
    return f"{value:,.6g}" if abs(value) < 1e5 else f"{value:,.1f}"


def read(name: str, value: Value, rounding: float = 0.5) -> Range:
    """The interval of true values of `value`, reported as `name`. Raises ValueError for one of another kind.

    A str is a number as printed, off by at most `rounding` units of its last digit, also "9.1%" and "2.47x".
    An int is exact, a float exact up to 1e-9, a count always exact.

    >>> print(read("acceptance_rate", "0.80"), "|", read("steps", "7"), "|", read("acceptance_rate", "9.1%"))
    0.795 to 0.805 | 7 | 0.0905 to 0.0915
    """
    if isinstance(value, int) and abs(value) > 10**LARGEST:  # Python does not print long ones
        raise ValueError(f"{name}: an integer above 10^{LARGEST} is out of range; no run has as many tokens")
    text = str(value).strip()
    digits, scale, shown = text, Decimal(1), text if len(text) <= 40 else f"{text[:40]}…"
    if name in RATES and text.endswith("%"):
        digits, scale = text[:-1], Decimal("0.01")
    elif name == "speedup":
        digits = text.rstrip("x×")
    try:
        exact = Decimal(digits)
    except InvalidOperation:
        exact = Decimal("nan")
    if not exact.is_finite():
        raise ValueError(f"{name}: {shown!r} is not a number; write it without separators, as in 1234.5")
    exponent = exact.as_tuple().exponent
    assert isinstance(exponent, int)
    if exponent < SMALLEST or exact.adjusted() > LARGEST:
        raise ValueError(
            f"{name}: {shown} is out of range; give at most 10^{LARGEST}, with at most {-SMALLEST} decimals"
        )
    unit, exact = scale * Decimal(1).scaleb(exponent), exact * scale
    for wrong, problem in (
        (exact < 0, "is negative; give a number ≥ 0"),
        (name in WHOLE and exact != exact.to_integral_value(), "is not a whole number; give an integer"),
        (name in RATES and exact > 1, "is outside [0, 1]; write a percentage with its sign, as in 71.4%"),
        (name in ("gamma", "steps") and exact < 1, "is below 1; give at least 1"),
        (name in (*TIMES, "speedup") and exact == 0, "is not positive; give a number > 0"),
    ):
        if wrong:
            raise ValueError(f"{name}: {text} {problem}")
    if name in WHOLE or isinstance(value, Integral):
        return Range(float(exact), float(exact))
    middle = float(exact)
    error = rounding * float(unit) if isinstance(value, str) else FLOAT_ERROR * max(1.0, middle)
    return Range(max(0.0, middle - error), min(1.0, middle + error) if name in RATES else middle + error)
