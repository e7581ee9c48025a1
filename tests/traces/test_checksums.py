"""The passes over rows: two numbers at a time, one at a time and plain loops find the same."""

import numpy as np
import pytest

from specsim.core._kernels import interpreted
from specsim.traces import _checksums
from specsim.traces._checksums import BAD_SUM, BAD_VALUE, BLOCK, SOUND, measure
from specsim.traces._format import DTYPES, Columns, Layout


def columns_of(p, q):
    rows = len(p)
    labels = np.arange(rows), np.zeros(rows, np.int64), np.zeros(rows, np.int32)
    return Columns(
        *labels, np.zeros(rows, np.int32), np.full(rows, -1, np.int8), p, q, np.zeros(rows, np.uint64)
    )


def measured(p, q, dtype):
    layout = Layout(p.shape[1], 0, dtype, flags=False)
    return measure(columns_of(p, q), np.arange(len(p)), layout)


def rows(size, dtype):
    """Sound rows, then a NaN, a negative number and a wrong sum."""
    rng = np.random.default_rng(size)
    p, q = (rng.dirichlet(np.full(size, 0.5), 6).astype(DTYPES[dtype]) for _ in range(2))
    p[3, 5], q[4, 1] = np.nan, -1
    q[5] = q[5] * np.float32(0.5)
    return p, q


@pytest.mark.parametrize("size", [6, 7, 256, BLOCK + 2, 2 * BLOCK + 513])
@pytest.mark.parametrize("dtype", DTYPES)
def test_words_of_two_numbers_are_measured_as_those_of_one(dtype, size, monkeypatch):
    p, q = rows(size, dtype)
    found = measured(p, q, dtype)
    assert found.fault.tolist() == [SOUND] * 3 + [BAD_VALUE] * 2 + [BAD_SUM]
    least = np.minimum(p.astype(float), q.astype(float))[:3].sum(axis=1)
    assert found.beta[0, :3] == pytest.approx(least, rel=1e-6 if dtype == "bfloat16" else 1e-14)
    monkeypatch.setattr(_checksums, "_MEASURE_PAIRS", {})
    other = measured(p, q, dtype)
    assert other.checksum.tolist() == found.checksum.tolist()
    assert other.fault.tolist() == found.fault.tolist()
    assert other.beta[0, :3] == pytest.approx(found.beta[0, :3], rel=1e-6)


@pytest.mark.parametrize("size", [7, 8, BLOCK + 2])
@pytest.mark.parametrize("dtype", DTYPES)
def test_compiled_and_plain_loops_agree(dtype, size):
    p, q = rows(size, dtype)
    p, q = p[:4:3], q[:4:3]
    found = measured(p, q, dtype)
    with interpreted():
        plain = measured(p, q, dtype)
    assert plain.checksum.tolist() == found.checksum.tolist()
    assert plain.fault.tolist() == found.fault.tolist()
    assert plain.beta[0, :1] == pytest.approx(found.beta[0, :1], rel=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_every_change_of_one_bit_changes_the_checksum(dtype):
    p, q = (row[:1, :66].copy() for row in rows(66, dtype))
    sound = measured(p, q, dtype).checksum[0]
    for row in (p, q):
        bits = row.view(np.uint16)
        for place in (0, 1, 64, 65):
            for bit in range(16):
                bits[0, place] ^= np.uint16(1 << bit)
                assert measured(p, q, dtype).checksum[0] != sound
                bits[0, place] ^= np.uint16(1 << bit)
