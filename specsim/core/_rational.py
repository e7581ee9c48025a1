"""Exact arithmetic of the enumerations: ``mpq`` of gmpy2 if installed, otherwise ``fractions.Fraction``.

The two compare and hash alike, and may be mixed; ``mpq`` is several times faster. Users are given `Fraction`.
"""

from fractions import Fraction
from typing import Any

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
