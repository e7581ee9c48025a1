"""Numbers as people write them: 12, 1e6, 10M, 80%."""

import re
from fractions import Fraction
from typing import Any

#: What a number may end with.
SUFFIXES = {"k": 10**3, "M": 10**6, "G": 10**9}


def exact(text: str, what: str = "a number such as 12, 1e6, 10M or 80%") -> Fraction:
    """The number that `text` is, such as 12, 1e6, 10M or 80%. Raises ValueError for another text."""
    digits, factor = text.strip(), Fraction(1)
    if digits.endswith("%"):
        digits, factor = digits[:-1], Fraction(1, 100)
    elif digits[-1:] in SUFFIXES:
        digits, factor = digits[:-1], Fraction(SUFFIXES[digits[-1]])
    if re.search(r"e[+-]?\d{4,}$", digits, re.IGNORECASE):
        raise ValueError(f"{text!r} is out of range")
    try:
        return Fraction(digits if "/" not in digits else "") * factor
    except ValueError:
        raise ValueError(f"{text!r} is not {what}") from None


def whole(text: str) -> int:
    """The integer that `text` is, such as 1e6 or 10M; 1.5 is an error, not rounded."""
    if (number := exact(text, "a whole number")).denominator != 1:
        raise ValueError(f"{text!r} is not a whole number")
    return int(number)


def real(text: str) -> float:
    """The float nearest to the number that `text` is; also NaN and infinity, which functions refuse."""
    if text.strip().lower().lstrip("+-") in ("nan", "inf", "infinity"):
        return float(text)
    try:
        return float(exact(text))
    except OverflowError:
        raise ValueError(f"{text!r} is out of range") from None


# Exact arithmetic of the enumerations: ``mpq`` of gmpy2 if installed, otherwise ``fractions.Fraction``.

try:
    from gmpy2 import mpq as _exact
except ImportError:
    _exact = Fraction

#: The type of exact numbers: ``rational(value)`` of an integer, a float or a rational.
rational: Any = _exact


def as_fraction(value: Any) -> Fraction:
    """`value`, of any type of real number, as a Fraction of Python integers."""
    numerator, denominator = value.as_integer_ratio()
    return Fraction(int(numerator), int(denominator))
