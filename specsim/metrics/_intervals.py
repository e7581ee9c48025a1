"""Reported numbers as intervals: exact for counts, else the values that round to the printed digits."""

import math
from decimal import Decimal, InvalidOperation
from numbers import Integral
from typing import NamedTuple

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


def _short(text: str) -> str:
    """A text to quote in a message."""
    return text if len(text) <= 40 else f"{text[:40]}…"


def read(name: str, value: Value, rounding: float = 0.5) -> Range:
    """The interval of true values of `value`, reported as `name`.

    A str is a number as printed: off by at most `rounding` units of its last digit; "9.1%" and "2.47x" are
    accepted. An int is exact, a float exact up to 1e-9, a count always exact. Raises ValueError for anything
    but a number, a negative one, a count that is not whole, or a rate outside [0, 1].

    >>> print(read("acceptance_rate", "0.80"), "|", read("steps", "7"), "|", read("acceptance_rate", "9.1%"))
    0.795 to 0.805 | 7 | 0.0905 to 0.0915
    """
    if isinstance(value, int) and abs(value) > 10**LARGEST:  # Python does not print long ones
        raise ValueError(f"{name}: an integer above 10^{LARGEST}; no run has as many tokens")
    text = str(value).strip()
    digits, scale = text, Decimal(1)
    if name in RATES and text.endswith("%"):
        digits, scale = text[:-1], Decimal("0.01")
    elif name == "speedup":
        digits = text.rstrip("x×")
    try:
        exact = Decimal(digits)
    except InvalidOperation:
        exact = Decimal("nan")
    if not exact.is_finite():
        raise ValueError(
            f"{name}: {_short(text)!r} is not a number; write it without separators, as in 1234.5"
        )
    exponent = exact.as_tuple().exponent
    assert isinstance(exponent, int)
    if exponent < SMALLEST or exact.adjusted() > LARGEST:
        raise ValueError(
            f"{name}: {_short(text)} is out of range; give at most 10^{LARGEST}, with at most {-SMALLEST} "
            "decimals"
        )
    unit, exact = scale * Decimal(1).scaleb(exponent), exact * scale
    if exact < 0:
        raise ValueError(f"{name}: {text} is negative")
    if name in WHOLE and exact != exact.to_integral_value():
        raise ValueError(f"{name}: {text} is not a whole number")
    if name in RATES and exact > 1:
        raise ValueError(f"{name}: {text} is outside [0, 1]; a percentage needs its sign, as in 71.4%")
    if name in ("gamma", "steps") and exact < 1:
        raise ValueError(f"{name}: {text}; expected at least 1")
    if name in (*TIMES, "speedup") and exact == 0:
        raise ValueError(f"{name}: {text} is not positive")
    if name in WHOLE or isinstance(value, Integral):
        return Range(float(exact), float(exact))
    middle = float(exact)
    error = rounding * float(unit) if isinstance(value, str) else FLOAT_ERROR * max(1.0, middle)
    return Range(max(0.0, middle - error), min(1.0, middle + error) if name in RATES else middle + error)
