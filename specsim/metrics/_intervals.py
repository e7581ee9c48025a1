"""A number as it was reported is an interval: exact where it is a count, else what rounds to the digits printed."""

from __future__ import annotations

import math
from decimal import Decimal, InvalidOperation
from numbers import Integral
from typing import NamedTuple

#: What may be reported: counts of a run; whole numbers; numbers in [0, 1]; positive times, all in one unit.
COUNTS = ("steps", "drafted", "accepted", "emitted", "bonus")
WHOLE = (*COUNTS, "gamma", "requests")
RATES = ("acceptance_rate", "by_position")
TIMES = ("draft_time", "target_time", "step_time")

#: How exact a float is: relative, absolute below 1.
FLOAT_ERROR = 1e-9

Value = str | int | float


class Range(NamedTuple):
    """The numbers from `low` to `high`, both included; either may be infinite.

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
    """What `value`, reported as `name`, may have been.

    A str is a number as printed: off by at most `rounding` units of its last digit; "9.1%" and "2.47x" are read as
    well. An int is exact, a float exact up to 1e-9, a count exact however it is given.
    Raises ValueError for what is no number, negative, not whole where a count is meant, outside [0, 1] for a rate.

    >>> print(read("acceptance_rate", "0.80"), "|", read("steps", "7"), "|", read("acceptance_rate", "9.1%"))
    0.795 to 0.805 | 7 | 0.0905 to 0.0915
    """
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
        raise ValueError(f"{name}: {text!r} is not a number; write it without separators, as in 1234.5")
    exponent = exact.as_tuple().exponent
    assert isinstance(exponent, int)
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
