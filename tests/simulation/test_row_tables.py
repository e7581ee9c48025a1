"""Steps from tables of rows are those of the row kernels, token by token, however little the tables hold."""

import numpy as np
import pytest

from specsim import rules
from specsim.core._streams import key_of
from specsim.models import NGramModel, TableModel, Tree, chain
from specsim.simulation import _row_tables
from specsim.simulation._sources import ModelSource, RowSource, make_source

KEY, STEPS = key_of(3), 3001
TEXT = b"the rows of a model after a context are kept, and others are not; " * 3
WITH_TABLES = [name for name in rules.names() if rules.get(name).positions]


def tables(seed, size, *orders):
    """Models with zeros in their rows."""
    rng = np.random.default_rng(seed)
    for order in orders:
        weights = rng.gamma(0.5, size=(size,) * (order + 1)) * (rng.random((size,) * (order + 1)) < 0.8)
        weights[..., 0] += 0.01
        yield TableModel(weights / weights.sum(axis=-1, keepdims=True))


PAIRS = {
    "orders 1 and 1": lambda: tables(1, 20, 1, 1),
    "orders 0 and 2": lambda: tables(2, 5, 0, 2),
    "orders 2 and 0": lambda: tables(3, 17, 2, 0),
    "one token": lambda: tables(4, 1, 1, 0),
    "bytes": lambda: (NGramModel.train([TEXT], 4), NGramModel.train([TEXT], 2)),
}


def steps_of(source):
    batches = list(source.batches(KEY, 5, STEPS))
    return [
        np.concatenate([getattr(one, name) for one in batches], axis=-1) for name in ("tokens", "accepted")
    ]


def same_as_rows(source):
    assert isinstance(source, ModelSource)
    expected = steps_of(RowSource(source.reader, source.verify))
    return all(np.array_equal(a, b) for a, b in zip(steps_of(source), expected, strict=True))


@pytest.mark.parametrize("pair", PAIRS)
def test_tables_change_no_token(pair):
    source = make_source(*PAIRS[pair](), rule="standard", gamma=4)
    assert same_as_rows(source)
    assert same_as_rows(source), "from tables that are full of what the first time came to"


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (i > 2)) for i, name in enumerate(WITH_TABLES)]
)
def test_every_rule_is_the_same_from_tables(name):
    assert same_as_rows(make_source(*PAIRS["orders 1 and 1"](), rule=name, gamma=3))


@pytest.mark.parametrize("contexts", [0, 1, 10])
def test_what_does_not_fit_is_verified_from_rows_of_its_own(monkeypatch, contexts):
    monkeypatch.setattr(_row_tables, "TABLE_BYTES", 36 * 20 * contexts)
    source = make_source(*PAIRS["orders 1 and 1"](), rule="standard", gamma=4)
    assert same_as_rows(source)
    assert source.tables.known == contexts + 1


def test_a_wrong_table_changes_the_tokens():
    source = make_source(*PAIRS["orders 1 and 1"](), rule="standard", gamma=4)
    steps_of(source)
    source.tables.tables.p[:] *= 0.9
    assert not same_as_rows(source)


def test_which_steps_have_tables():
    one, other = PAIRS["orders 1 and 1"]()
    for options in (
        {"rule": "block", "gamma": 2},
        {"rule": "one_hot", "gamma": 2},  # its recovered token depends on the rejected one
        {"rule": "greedy_match", "gamma": Tree((0, 1), "top")},
        {"rule": "standard", "gamma": chain(2, block=2)},
    ):
        assert type(make_source(one, other, **options)) is RowSource
    large = TableModel(np.full(_row_tables.LARGEST + 1, 1 / (_row_tables.LARGEST + 1)))
    assert type(make_source(large, large, rule="standard", gamma=2)) is RowSource
