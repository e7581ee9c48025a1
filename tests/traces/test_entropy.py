"""Entropies against SciPy's, and that a whole `trace alpha` reads each row once."""

import numpy as np
import pytest
import scipy
from conftest import random_trace

from specsim.core._kernels import interpreted
from specsim.traces import read_alpha, summarise
from specsim.traces._analysis import entropies, summarise_and_read
from specsim.traces._format import DTYPES, Columns
from specsim.traces._reader import Shard


def rows(dtype):
    """Rows with zeros, a one, subnormal numbers, and numbers near 1 and near powers of 2."""
    p = np.random.default_rng(5).dirichlet(np.full(1001, 0.1), 12)
    p[:, ::7] = 0
    p[0], p[1] = 0, 1e-41
    p[0, 3] = 1
    p[2, :6] = [0.25, np.nextafter(0.25, 0), np.nextafter(0.5, 1), 0.5**0.5 / 2, 0.999999, 1e-7]
    return p.astype(DTYPES[dtype])


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_entropies_are_those_of_scipy(dtype, plain):
    p = rows(dtype)
    if plain:
        p = p[:, :150]
    columns = Columns(*[np.zeros(0)] * 5, p, p[::-1].copy(), np.zeros(0))
    chosen = np.flatnonzero(np.arange(len(p)) % 3 != 1)
    with interpreted() if plain else np.errstate():
        p_found, q_found = (entropies(columns, of, chosen) for of in "pq")
    wanted = scipy.special.entr(p.astype(np.float64)).sum(axis=1)
    assert p_found == pytest.approx(wanted[chosen], rel=1e-6, abs=1e-30)
    assert q_found == pytest.approx(wanted[::-1][chosen], rel=1e-6, abs=1e-30)
    assert not np.allclose(p_found, q_found), "rows in another order would be seen"


@pytest.fixture
def trace(tmp_path):
    return random_trace(tmp_path / "t", 40, 50, rows_per_shard=30)


def test_one_pass_says_what_two_say_and_reads_rows_once(trace, monkeypatch):
    read = []
    check = Shard._check
    monkeypatch.setattr(Shard, "_check", lambda *given: read.append(given[1].step.size) or check(*given))
    summary, reading = summarise_and_read(trace, bins=3, rng=4)
    assert sum(read) == trace.num_rows
    assert summary.to_dict() == summarise(trace).to_dict()
    assert reading.to_dict() == read_alpha(trace, bins=3, rng=4).to_dict()
    assert sum(read) == 3 * trace.num_rows


def test_threads_change_nothing(trace, monkeypatch):
    found = []
    for threads in (1, 3):
        monkeypatch.setattr("specsim.traces._summary.available_threads", lambda threads=threads: threads)
        found.append([part.to_dict() for part in summarise_and_read(trace, rng=0)])
    assert found[0] == found[1]
