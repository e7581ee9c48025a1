"""Linear statements about unknown counts, and the values that they allow.

A form is Σ coefficient · unknown, {unknown: coefficient}; a statement is form ≤ 0. The unknown "one" turns a
number into a form: unknowns are known up to a common factor, which fixing `one` sets (or the steps, if no
count was reported). Fixing a ratio's denominator instead gives its range (Charnes & Cooper, 1962), or with
whole unknowns, steps from one ratio to a better one (Dinkelbach, 1967)."""

import math
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from itertools import compress
from numbers import Integral
from typing import NamedTuple

import numpy as np
import scipy

Form = dict[str, float]
Bounds = list[tuple[Form, float, float]]  # of forms, the least and the most

#: The value of the fixed form: large against the solver's absolute tolerance of 1e-7.
SIZE = 1e6
#: By how much a statement may be violated, 1e-11 of `SIZE`, and the decimals that this leaves exact.
TOLERANCE, DIGITS = 1e-5, 4
#: The largest reported count at which unknowns are whole, and the solver's time for it; then they are not.
MOST_WHOLE, SECONDS = 10**7, 2.0
#: The most drafted tokens of a step.
MOST_GAMMA = 10**6
CLOSE = 1e-9  #: Ratios this close are one.


def plus(*forms: Form) -> Form:
    """The sum of forms."""
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
    """Unknowns ≥ 0 under the kept statements. `largest` is the largest reported count, 0 without any.

    They are whole, but not without a count, since any run can be repeated, nor above `MOST_WHOLE`."""

    def __init__(self, largest: float) -> None:
        self.unit: Form = {"one": 1} if largest else {"steps": 1}  # what values are measured in
        self.error = 1e-9 * (largest or 1)  # how far off a value may be
        self._fixed = SIZE / (largest or 1)  # what `unit` is set to
        self._whole = 0 < largest <= MOST_WHOLE
        self._cases: list[list[Form]] = [[]]  # the statements of one of them hold
        self._solved: dict[object, float] = {}  # by form and unit; each costs a few milliseconds
        self._points: list[Form] = []  # whole values that were found

    def keep(self, *statements: Form, unless: Sequence[Form] = ()) -> None:
        """Keep form ≤ 0 for each of `statements`, or else for each of `unless`."""
        choices = (statements, unless) if unless else (statements,)
        self._cases = [[*case, *choice] for case in self._cases for choice in choices]
        fit = [all(_at(form, point) <= 0 for form in statements) for point in self._points]
        self._solved, self._points = {}, list(compress(self._points, fit))

    def feasible(self, over: Form | None = None) -> bool:
        """Whether any values are left; with `over`, any at which that form is not 0."""
        found = self._solve({}, over or self.unit)
        return max(found, self._known({}, over or self.unit, found) if self._whole else found) < math.inf

    def least(self, form: Form, over: Form | None = None) -> float:
        """The smallest value of `form`, or of its ratio to `over`; −inf if unbounded."""
        found = self._solve(form, over or self.unit)
        found = round(round(found, DIGITS) / (SIZE if over else self._fixed), 9) + 0.0
        if not self._whole or math.isinf(found):
            return found
        ratio = self._known(form, over or self.unit, found)
        if over and ratio > found + CLOSE:  # ratios may be approached by ever larger counts
            ratio, better = math.inf, min(ratio, self._solve(form, over, {"one": 1.0}) / SIZE)
            while self._whole and better < ratio - CLOSE:
                ratio, better = better, self._nearest(form, over, better)
        return round(ratio if self._whole else found, 9) + 0.0

    def most(self, form: Form, over: Form | None = None) -> float:
        """The largest value, inf if unbounded."""
        return 0.0 - self.least(times(-1, form), over)

    def range(self, form: Form, over: Form | None = None) -> "Range":
        return Range(self.least(form, over), self.most(form, over))

    def _solve(self, form: Form, unit: Form, *zero: Form) -> float:
        """The least value of `form` with `unit` fixed and `zero` 0; −inf if unbounded, inf if infeasible."""
        key = (*form.items(), None, *unit.items(), bool(zero))
        if key not in self._solved:
            fixed = self._fixed if unit == self.unit else SIZE
            bounds = [(unit, fixed, fixed), *((one, 0.0, 0.0) for one in zero)]
            cases = [[(one, -math.inf, TOLERANCE) for one in case] + bounds for case in self._cases]
            self._solved[key] = min(_minimize(form, case)[0] for case in cases)
        return self._solved[key]

    def _known(self, form: Form, over: Form, least: float) -> float:
        """`least` if known values have that ratio of `form` to `over`, else the ratio at `_nearest`."""
        ratios = [_at(form, point) / _at(over, point) for point in self._points if _at(over, point)]
        found = min(ratios, default=math.inf)
        return found if found <= least + CLOSE else self._nearest(form, over, least)

    def _nearest(self, form: Form, over: Form, trial: float) -> float:
        """The ratio of `form` to `over` at whole values of the least form − trial · over; inf if none."""
        bounds = [({"one": 1.0}, 1.0, 1.0), (over, min(map(abs, over.values())) / 2, math.inf)]
        cases = [[(one, -math.inf, TOLERANCE / self._fixed) for one in case] + bounds for case in self._cases]
        found = [_minimize(minus(form, times(trial, over)), case, whole=True) for case in cases]
        self._points += [point for _, point in found if point]
        least, best = min(found, key=lambda one: one[0])
        self._whole &= least > -math.inf
        return _at(form, best) / _at(over, best) if best else least


def _minimize(form: Form, bounds: Bounds, whole: bool = False) -> tuple[float, Form]:
    """The least `form` within `bounds` and its unknowns; inf if infeasible, −inf if unbounded or too slow."""
    forms, low, high = zip(*bounds, strict=True)
    names = sorted({name for one in (form, *forms) for name in one})
    rows = np.array([[one.get(name, 0.0) for name in names] for one in (form, *forms)])
    # HiGHS 1.12 presolves some programs of whole unknowns to a wrong optimum
    options = {"time_limit": SECONDS, "mip_rel_gap": 0.0, "presolve": not whole}
    # with no whole unknown too: the solver and the numbers of `linprog`, without its copies
    kinds, limits = [whole] * len(names), (rows[1:], low, high)
    found = scipy.optimize.milp(rows[0], integrality=kinds, constraints=limits, options=options)
    if found.status:
        return math.inf if found.status == 2 else -math.inf, {}
    return float(found.fun), dict(zip(names, np.round(found.x) if whole else found.x, strict=True))


def _at(form: Form, point: Form) -> float:
    return sum(coefficient * point.get(name, 0.0) for name, coefficient in form.items())


#: Kinds of reported numbers: counts of a run; whole numbers; numbers in [0, 1]; positive times in one unit.
COUNTS = ("steps", "drafted", "accepted", "emitted", "bonus")
WHOLE = (*COUNTS, "gamma", "requests", "batch")
RATES = ("acceptance_rate", "by_position")
LATENCIES = ("itl", "tpot", "ttft", "latency")
TIMES = ("draft_time", "target_time", "step_time", *LATENCIES, "throughput", "batch")

#: Uncertainty of a float: relative, absolute below 1.
FLOAT_ERROR = 1e-9
#: Magnitudes of numbers that are believed, as powers of ten; floats hold all of them, and their quotients.
SMALLEST, LARGEST = -100, 18


class Range(NamedTuple):
    """The closed interval from `low` to `high`; either may be infinite."""

    low: float
    high: float

    def __str__(self) -> str:
        if math.isinf(self.high):
            return "any" if math.isinf(self.low) else f"at least {number(self.low)}"
        if math.isinf(self.low):
            return f"at most {number(self.high)}"
        ends = number(self.low), number(self.high)
        return ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"


Value = str | int | float | Range


def number(value: float) -> str:
    """A whole number in full, any other with six digits or one decimal."""
    if abs(value - round(value)) < 1e-9 * max(100, abs(value)):
        return f"{round(value):,}"
    return f"{value:,.6g}" if abs(value) < 1e5 else f"{value:,.1f}"


def read(name: str, value: Value, rounding: float = 0.5) -> Range:
    """The interval of true values of `value`, reported as `name`. Raises ValueError for one of another kind.

    A str is a number as printed, off by at most `rounding` units of its last digit, also "9.1%" and "2.47x".
    An int is exact, a float exact up to 1e-9, a count always exact. A Range is returned."""
    if isinstance(value, Range):
        return value
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
        most = f"10^{LARGEST}, with at most {-SMALLEST} decimals"
        raise ValueError(f"{name}: {shown} is out of range; give at most {most}")
    unit, exact = scale * Decimal(1).scaleb(exponent), exact * scale
    rate = "give at most 100%" if scale < 1 else "write a percentage with its sign, as in 71.4%"
    for wrong, problem in (
        (exact < 0, "is negative; give a number ≥ 0"),
        (name in WHOLE and exact != exact.to_integral_value(), "is not a whole number; give an integer"),
        (name in RATES and exact > 1, f"is outside [0, 1]; {rate}"),
        (name in ("gamma", "steps") and exact < 1, "is below 1; give at least 1"),
        (name == "gamma" and exact > MOST_GAMMA, f"is above {MOST_GAMMA:,}; give the drafts of a step"),
        (name in (*TIMES, "speedup") and exact == 0, "is not positive; give a number > 0"),
    ):
        if wrong:
            raise ValueError(f"{name}: {text} {problem}")
    if name in WHOLE or isinstance(value, Integral):
        return Range(float(exact), float(exact))
    middle = float(exact)
    error = rounding * float(unit) if isinstance(value, str) else FLOAT_ERROR * max(1.0, middle)
    return Range(max(0.0, middle - error), min(1.0, middle + error) if name in RATES else middle + error)
