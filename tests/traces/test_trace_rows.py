"""The pass over a trace's rows, number by number: β, the checksum and the faults of words of every kind."""

import ctypes
import math
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import ml_dtypes
import numpy as np
import pytest

from specsim.core._kernels import interpreted
from specsim.traces import _checksums
from specsim.traces._checksums import (
    BAD_SUM,
    BAD_VALUE,
    BLOCK,
    CONTEXT_FACTOR,
    HORNER,
    Q_OFFSET,
    SOUND,
    STEP_FACTOR,
    Measured,
    decode,
    measure,
)
from specsim.traces._format import Columns, Layout
from specsim.traces._pieces import PIECE, keeps_subnormals

STORED = {
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
}
DTYPES = list(STORED)
SIZES = [1, 2, 7, 2 * PIECE + 2, 2048, 2049, 5001]
SIZES += [pytest.param(size, marks=pytest.mark.slow) for size in (2047, 5002)]


def measured(dtype: str, p: np.ndarray, q: np.ndarray) -> Measured:
    """The rows (words or numbers [R, V]) as the pass over a trace sees them, each a text of one token."""
    p, q = (np.ascontiguousarray(rows).view(STORED[dtype]) for rows in (p, q))
    ids = np.arange(len(p))
    zeros, nones = np.zeros(len(p), np.int32), np.full(len(p), -1, np.int8)
    columns = Columns(ids, ids, zeros, zeros, nones, p, q, np.zeros(len(p), np.uint64))
    return measure(columns, ids, Layout(p.shape[1], 0, dtype, flags=False))


def some_rows(dtype: str, size: int, seed: int = 0) -> np.ndarray:
    """Rows of many scales: of float16's numbers most are subnormal. Some hold one token, one all alike."""
    rng = np.random.default_rng(seed)
    rows = np.exp(rng.normal(size=(8, size)) * np.array([[0.1, 1, 2, 3, 4, 5, 6, 8]]).T)
    rows /= rows.sum(axis=1, keepdims=True)
    rows = np.concatenate([rows, np.eye(size)[rng.integers(0, size, 2)], np.full((1, size), 1 / size)])
    return rows.astype(STORED[dtype])


def checksum_by_hand(p: np.ndarray, q: np.ndarray, fold: int = 15) -> int:
    """Of one row's words and a label's zeros, in Python's integers, as `traces._checksums` defines it."""
    total = int(HORNER)
    for low in range(0, len(p), 2048):
        part, (xs, ys) = 0, (words[low : low + 2048].tolist() for words in (p, q))
        for i, (x, y) in enumerate(zip(xs, ys, strict=True)):
            part += (x ^ x >> fold) * (2 * i + 1) + (y ^ y >> fold) * (2 * i + 1 + int(Q_OFFSET))
        total = total * int(HORNER) + part % 2**32
    return (total + 255) % 2**64


@pytest.mark.parametrize(("dtype", "words"), [("float16", 0x7C00), ("bfloat16", 0x10000)])
def test_every_pattern_of_16_bits_is_read_as_numpy_reads_it(dtype: str, words: int) -> None:
    """Of float16, all but infinity, NaN and negative numbers, which are no probabilities."""
    patterns = np.arange(words, dtype=np.uint16)
    stored = patterns.view(STORED[dtype])[None]
    with np.errstate(invalid="ignore"):
        expected = stored.astype(np.float32)
    np.testing.assert_array_equal(decode(stored).view(np.uint32), expected.view(np.uint32))
    if dtype == "float16":
        without_subnormals = ((patterns.astype(np.uint32) << 13) + (112 << 23)).view(np.float32)
        assert (without_subnormals != expected[0]).sum() == 1024


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", SIZES)
def test_beta_is_the_sum_of_the_stored_numbers(dtype: str, size: int) -> None:
    """To float64's rounding, where the sum is just above 1 too."""
    p, q = some_rows(dtype, size), some_rows(dtype, size, seed=1)
    p[0, : size // 2] *= p.dtype.type(1.000_008 if dtype == "float32" else 1.001)
    q[0] = p[0]
    found = measured(dtype, p, q)
    least = np.minimum(p.astype(np.float64), q.astype(np.float64))
    exact = np.array([math.fsum(row) for row in least])
    assert (found.fault == SOUND).all()
    np.testing.assert_allclose(found.beta[0], exact, rtol=1e-13, atol=0)
    if size > 2000:  # sums of float32, and of float16 those without its subnormal numbers, are others
        in_float32 = np.cumsum(least, axis=1, dtype=np.float32)[:, -1]
        without_subnormals = np.where(least < 2.0**-14, 0.0, least).sum(axis=1)
        wrong = without_subnormals if dtype == "float16" else in_float32
        assert (np.abs(wrong - exact) > 1e-13 * exact).any()


def test_sums_above_one_of_float16_are_exact() -> None:
    """Above 1 float32 is too coarse for the smallest numbers of float16: it would lose each of this row's."""
    row = np.full((1, 2049), 2.0**-24, np.float16)
    row[0, 0] = 1.0
    exact = 1.0 + 2048 * 2.0**-24
    assert measured("float16", row, row).beta[0, 0] == exact
    assert np.cumsum(row[0], dtype=np.float32)[-1] != exact


@contextmanager
def subnormals_are_zero() -> Iterator[None]:
    """As in a process with a library compiled with -ffast-math, on x86-64 with glibc."""
    library, found = ctypes.CDLL("libm.so.6"), (ctypes.c_uint32 * 8)()
    assert library.fegetenv(found) == 0
    changed = type(found)(*found)
    changed[7] |= 1 << 15 | 1 << 6  # of the register MXCSR: flush to zero, and denormals are zero
    assert library.fesetenv(changed) == 0
    try:
        yield
    finally:
        assert library.fesetenv(found) == 0


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64" or platform.libc_ver()[0] != "glibc",
    reason="the processor's register is set as glibc does on x86-64",
)
def test_float16_is_read_where_the_processor_takes_subnormal_numbers_for_zero(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    p, q = (np.exp(np.random.default_rng(seed).normal(size=(4, 32_000))) for seed in (0, 1))
    p, q = ((rows / rows.sum(axis=1, keepdims=True)).astype(np.float16) for rows in (p, q))
    expected = measured("float16", p, q)
    assert keeps_subnormals()
    with subnormals_are_zero():
        assert not keeps_subnormals()
        found = measured("float16", p, q)
        monkeypatch.setattr(_checksums, "keeps_subnormals", lambda: True)
        wrong = measured("float16", p, q)
    assert (expected.fault == SOUND).all()
    for part, same in zip(found, expected, strict=True):
        np.testing.assert_array_equal(part, same)
    assert (wrong.fault == BAD_SUM).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", SIZES)
def test_checksums_are_those_of_the_definition(dtype: str, size: int) -> None:
    """Of probabilities and of any words, which a damaged row may hold."""
    rng = np.random.default_rng(size)
    word = np.dtype(f"u{STORED[dtype].itemsize}")
    any_words = rng.integers(0, 2 ** (8 * word.itemsize), (2, 3, size), dtype=np.uint64).astype(word)
    sound = np.stack([some_rows(dtype, size, seed=seed)[:3].view(word) for seed in (0, 1)])
    for p, q in (any_words, sound):
        found = measured(dtype, p, q)
        by_hand = [
            (checksum_by_hand(x, y) + row * (int(STEP_FACTOR) + int(CONTEXT_FACTOR))) % 2**64
            for row, (x, y) in enumerate(zip(p, q, strict=True))
        ]
        assert found.checksum.tolist() == by_hand
    p, q = any_words | word.type(1 << (8 * word.itemsize - 1))
    assert checksum_by_hand(p[0], q[0]) != checksum_by_hand(p[0], q[0], fold=99)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_number_that_is_no_probability_is_found_wherever_it_stands(dtype: str) -> None:
    stored = STORED[dtype]
    values = np.array([np.nan, np.inf, -np.inf, -0.25, -0.0, 2.0, -float(ml_dtypes.finfo(stored).tiny)])
    for size, place in ((1, 0), (7, 6), (2049, 0), (2049, 2047), (2049, 2048), (5001, 4999)):
        rows = np.repeat(some_rows(dtype, size)[:1], len(values) + 1, axis=0)
        wrong = rows.copy()
        wrong[1:, place] = values.astype(stored)
        for found in (measured(dtype, wrong, rows), measured(dtype, rows, wrong)):
            assert found.fault.tolist() == [SOUND] + [BAD_VALUE] * len(values)
    for scale in (0.9, 1.1):
        off = (rows * stored.type(scale)).astype(stored)
        assert (measured(dtype, off, rows).fault == BAD_SUM).all()
        assert (measured(dtype, rows, off).fault == BAD_SUM).all()


def faulty_rows(dtype: str, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows p, q: three sound ones, then a NaN, a negative number and a wrong sum."""
    rng = np.random.default_rng(size)
    p, q = (rng.dirichlet(np.full(size, 0.5), 6).astype(STORED[dtype]) for _ in range(2))
    p[3, 5], q[4, 1] = np.nan, -1
    q[5] = q[5] * np.float32(0.5)
    return p, q


@pytest.mark.parametrize("size", [6, 7, 256, BLOCK + 2, 2 * BLOCK + 513])
@pytest.mark.parametrize("dtype", DTYPES)
def test_words_of_two_numbers_are_measured_as_those_of_one(
    dtype: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = measured(dtype, *faulty_rows(dtype, size))
    assert found.fault.tolist() == [SOUND] * 3 + [BAD_VALUE] * 2 + [BAD_SUM]
    monkeypatch.setattr(_checksums, "_MEASURE_PAIRS", {})
    other = measured(dtype, *faulty_rows(dtype, size))
    assert other.checksum.tolist() == found.checksum.tolist()
    assert other.fault.tolist() == found.fault.tolist()
    assert other.beta[0, :3] == pytest.approx(found.beta[0, :3], rel=1e-6)


@pytest.mark.parametrize("size", [7, 8, BLOCK + 2])
@pytest.mark.parametrize("dtype", DTYPES)
def test_compiled_and_plain_loops_agree(dtype: str, size: int) -> None:
    p, q = (rows[:4:3] for rows in faulty_rows(dtype, size))
    found = measured(dtype, p, q)
    with interpreted():
        plain = measured(dtype, p, q)
    assert plain.checksum.tolist() == found.checksum.tolist()
    assert plain.fault.tolist() == found.fault.tolist()
    assert plain.beta[0, :1] == pytest.approx(found.beta[0, :1], rel=1e-6)
