"""Logarithm, exponential and powers with the same bits on every machine and device.

Those of C libraries and of GPUs differ in the last bit, so that a rule which compares them could decide
otherwise elsewhere. These, for the kernels of rules, are made of additions, products and divisions, which
IEEE 754 rounds alike everywhere, and of the bits of their arguments.

A float64 is (1 + fraction)·2^exponent, with the fraction in bits 0 to 51 and exponent + 1023 above."""

import math
from decimal import Context, Decimal

import numpy as np

from specsim.core._kernels import inner_kernel

_LOG_2 = Decimal(2).ln(Context(prec=50))
#: log 2 in two parts; the product of an exponent and the first, which has 32 bits, is exact.
LOG_2 = math.floor(math.ldexp(float(_LOG_2), 32)) / 2.0**32
REST = float(_LOG_2 - Decimal(LOG_2))
#: The bits of √½: the series is that of numbers between this and its double.
ROOT = int(np.float64(math.sqrt(0.5)).view(np.int64))
#: Numbers below it have no exponent, and are first multiplied by 2^54.
NORMAL, SHIFT, SCALE = 2.0**-1022, 54, 2.0**54
#: Beyond these numbers the exponential is 0, or infinite.
LEAST, MOST = -708.0, 709.0
#: The last terms of both series, of which the next ones are below the last bit.
LAST_OF_LOG, LAST_OF_EXP = 21, 14


@inner_kernel
def log(x):
    """The natural logarithm of x ≥ 0, to two units in the last place; of 0 it is -∞, of less NaN."""
    small = x < NORMAL
    bits = np.float64(x * SCALE if small else x).view(np.int64)
    exponent = (bits - ROOT) >> 52
    f = np.int64(bits - (exponent << 52)).view(np.float64) - 1.0
    if small:
        exponent -= SHIFT
    # log(1 + f) = 2·artanh(s) = 2·(s + s³/3 + …), and 2s = f - s·f
    s = f / (2.0 + f)
    square, series = s * s, 0.0
    for k in range(LAST_OF_LOG, 1, -2):
        series = square * (series + 2.0 / k)
    found = exponent * LOG_2 + (exponent * REST + (f - s * (f - series)))
    if 0.0 < x < np.inf:
        return found
    return x if x > 0.0 else -np.inf if x == 0.0 else np.nan


@inner_kernel
def exp(x):
    """The exponential of x, to two units in the last place; 0 below `LEAST`, ∞ above `MOST`."""
    if not LEAST <= x <= MOST:
        return 0.0 if x < LEAST else np.inf if x > MOST else np.nan
    exponent = np.int64(math.floor(x / LOG_2 + 0.5))
    rest, series = (x - exponent * LOG_2) - exponent * REST, 1.0
    for k in range(LAST_OF_EXP, 0, -1):
        series = 1.0 + rest * series / k
    return series * np.int64((exponent + 1023) << 52).view(np.float64)


@inner_kernel
def power(x, count):
    """x·x·…·x, `count` ≥ 0 times, by squaring."""
    found = 1.0
    while count > 0:
        if count % 2:
            found *= x
        x *= x
        count //= 2
    return found
