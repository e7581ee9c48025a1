"""The alternatives of pooled e-values: laws of known kinds of mistakes, and what testing against them gains."""

from itertools import product

import numpy as np
import pytest
from letters import log_pooled_e_value

from specsim.adapters._contract import Declared
from specsim.auditing._cases.battery import Case, battery
from specsim.auditing._checks.claimed_law import Claim
from specsim.auditing._checks.tables import (
    BONUS,
    DRAFT,
    Joined,
    alternatives,
    bins_of,
    plan_tables,
    pooled_tables,
)
from specsim.core.stats import log_e_value, log_e_values, log_pooled_e_values, log_shared

ROWS = [
    ([0.5, 0.3, 0.2], [0.2, 0.3, 0.5]),
    ([0.7, 0.3, 0.0], [0.0, 0.4, 0.6]),
    ([1.0, 0.0, 0.0], [0.2, 0.8, 0.0]),
    ([0.2, 0.8, 0.0], [0.0, 1.0, 0.0]),
    ([0.5, 0.5, 0.0], [0.0, 0.0, 1.0]),
    ([0.4, 0.3, 0.3], [0.4, 0.3, 0.3]),
]


@pytest.mark.parametrize(("p", "q"), ROWS, ids=str)
@pytest.mark.parametrize("bonus", [False, True])
def test_alternatives_are_laws(p, q, bonus):
    p, q = np.array(p), np.array(q)
    (found,) = alternatives(p[None], None if bonus else q[None], q[None])
    assert found.shape == (2 + DRAFT + BONUS, 3)
    assert (found >= 0.0).all()
    assert found.sum(axis=1) == pytest.approx(1.0)
    assert alternatives(p[None], None, None).sum(axis=2) == pytest.approx(1.0)
    unused = found[2 : 2 + DRAFT] if bonus else found[2 + DRAFT :]
    assert (unused == p).all()


def test_bins_are_those_of_the_integral_transform():
    p, q = np.random.default_rng(1).dirichlet(np.ones(7), size=2)
    p[2] = 0.0
    p /= p.sum()
    assert bins_of(p[None], p, q, 16) == pytest.approx(1.0 / 16.0)
    order = np.argsort(np.where(p > 0, p / q, 0.0), kind="stable")
    for token in np.flatnonzero(p):
        start = p[order[: int(np.flatnonzero(order == token)[0])]].sum()
        edges = np.clip((np.arange(17) / 16.0 - start) / p[token], 0.0, 1.0)
        assert bins_of(np.eye(7)[[token]], p, q, 16)[0] == pytest.approx(np.diff(edges))
    assert bins_of(np.eye(7)[[2]], p, q, 16).sum() == 0.0  # an impossible token is in no bin


def test_the_mean_under_the_null_is_one():
    pmf, starts = np.array([0.5, 0.3, 0.2, 0.6, 0.4]), np.array([0, 3])
    ratios = np.array([[0.2, 0.3, 0.5, 0.5, 0.5], [0.9, 0.1, 0.0, 0.6, 0.4]]) / pmf
    outcomes = list(product(range(3), range(3), (3, 4)))  # two of the first table, one of the second
    counts = np.array([np.bincount(draws, minlength=5) for draws in outcomes])
    chances = pmf[np.array(outcomes)].prod(axis=1)
    for against in (None, log_shared(ratios)):
        found = np.exp(log_pooled_e_values(counts, pmf, starts, against))
        assert chances @ found == pytest.approx(1.0)
    assert np.ptp(found) > 0.1


def test_many_experiments_are_those_one_by_one():
    pmf, starts = np.array([0.5, 0.3, 0.2, 1.0, 0.6, 0.4]), np.array([0, 3, 4])
    counts = np.random.default_rng(1).multinomial(500, pmf / 3.0, size=4)
    tables = [slice(0, 3), slice(3, 4), slice(4, 6)]
    found = log_e_values(counts, pmf, starts)
    for i, observed in enumerate(counts):
        each = [(observed[cells], pmf[cells]) for cells in tables]
        assert found[i] == pytest.approx([log_e_value(*table) for table in each])
        assert log_pooled_e_values(counts, pmf, starts)[i] == pytest.approx(log_pooled_e_value(each))


def plans():
    for case in battery(Declared()):
        if isinstance(case, Case) and case.target.vocab_size <= 128:
            yield case, plan_tables(case, Claim(None, case.tree), 2**20)


def test_every_token_is_in_one_pooled_table_with_alternatives():
    for case, tables in plans():
        pooled = pooled_tables(tables)
        positions = {table.position for table in tables if table.kind in ("prefix", "PIT")}
        assert {table.position for table in pooled} == positions
        assert len({(table.kind, table.position) for table in pooled}) == len(positions)
        for table in pooled:
            assert table.ratios.shape == (2 + DRAFT + BONUS, len(table.law)), case.name
            assert (table.ratios @ table.law <= 1.0 + 1e-9).all()  # less, where tokens would be impossible


@pytest.mark.parametrize("share", [0.05, 0.2])
def test_small_mistakes_of_a_known_kind_need_fewer_steps(share):
    """At the expected counts, for tokens that are resampled from the target at a share of rejections."""
    case, tables = next((case, tables) for case, tables in plans() if case.name == "asymmetric")
    p, q = (model.row(()) for model in (case.target, case.draft))
    kept = np.minimum(p, q)
    left = np.maximum(p - q, 0.0) / (1.0 - kept.sum())
    wrong = kept + (1.0 - kept.sum()) * ((1.0 - share) * left + share * np.array(p))
    first = [table for table in pooled_tables(tables) if table.position == 0]
    pooled = Joined(first)
    counts = np.round(40.0 / ((wrong - p) ** 2 / p).sum() * wrong).astype(np.int64)
    against_all = log_e_value(counts, first[0].law)
    assert pooled.log_pooled_e(counts[None])[0] > against_all + 2.0
    right = np.round(counts.sum() * np.array(p)).astype(np.int64)
    assert pooled.log_pooled_e(right[None])[0] < 0.0
