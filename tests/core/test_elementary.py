"""Logarithm, exponential and powers, beside those of extended precision and of fractions."""

from fractions import Fraction

import numpy as np
import pytest

from specsim.core import _elementary
from specsim.core._kernels import interpreted, kernel

RNG = np.random.default_rng(8)
#: Uniforms, numbers near 1, of all exponents, and without one.
POSITIVE = np.concatenate(
    [
        RNG.random(50_000),
        1.0 - 1e-3 * RNG.random(50_000),
        np.exp(RNG.uniform(-708.0, 709.0, 50_000)),
        2.0**-1074 * np.arange(1, 1000),
        2.0 ** np.arange(-1074, 1024),
        np.nextafter(np.sqrt(0.5) * 2.0 ** np.arange(-1000, 1000), RNG.choice([0.0, np.inf], 2000)),
    ]
)
EXPONENTS = np.concatenate(
    [RNG.uniform(-708.0, 709.0, 50_000), RNG.uniform(-20.0, 1.0, 50_000), [0.0, -708.0]]
)
#: The most units in the last place that are off.
UNITS = 2.0

wide = pytest.mark.skipif(
    np.finfo(np.longdouble).nmant < 60, reason="no numbers of more bits than float64 on this machine"
)


@kernel
def logs(x, out):
    for i in range(x.size):
        out[i] = _elementary.log(x[i])


@kernel
def exps(x, out):
    for i in range(x.size):
        out[i] = _elementary.exp(x[i])


def of(function, x):
    out = np.empty_like(x)
    function(x, out)
    return out


def units_off(found, exact):
    return float(np.abs((found - exact) / np.spacing(np.abs(exact.astype(np.float64)))).max())


@wide
@pytest.mark.parametrize(
    ("function", "exact", "x"), [(logs, np.log, POSITIVE), (exps, np.exp, EXPONENTS)], ids=["log", "exp"]
)
def test_the_last_place(function, exact, x):
    assert units_off(of(function, x), exact(x.astype(np.longdouble))) < UNITS


@wide
@pytest.mark.parametrize(("last", "value"), [("LAST_OF_LOG", 15), ("LAST_OF_EXP", 11)])
def test_a_shorter_series_is_noticed(monkeypatch, last, value):
    monkeypatch.setattr(_elementary, last, value)
    function, exact, x = (logs, np.log, POSITIVE) if last == "LAST_OF_LOG" else (exps, np.exp, EXPONENTS)
    with interpreted():
        assert units_off(of(function, x[:5_000]), exact(x[:5_000].astype(np.longdouble))) > UNITS


def test_the_compiled_code_has_the_bits_of_plain_python():
    for function, x in ((logs, POSITIVE), (exps, EXPONENTS)):
        some = np.concatenate([x[:3000], x[-3000:]])
        with interpreted():
            plain = of(function, some)
        np.testing.assert_array_equal(of(function, some), plain)


def test_the_ends():
    with np.errstate(invalid="ignore"):
        ends = of(logs, np.array([0.0, 1.0, np.inf, -1.0, np.nan]))
    np.testing.assert_array_equal(ends, [-np.inf, 0.0, np.inf, np.nan, np.nan])
    ends = of(exps, np.array([-np.inf, -708.1, 0.0, 709.1, np.inf, np.nan]))
    np.testing.assert_array_equal(ends, [0.0, 0.0, 1.0, np.inf, np.inf, np.nan])


@pytest.mark.parametrize("count", range(12))
def test_powers(count):
    assert _elementary.power(0.75, count) == Fraction(3, 4) ** count  # exact in float64
