"""Models at another temperature, or cut to their most probable tokens."""

from fractions import Fraction

import numpy as np
import pytest
from refused import refused

import specsim
from specsim import default_pair
from specsim.core import distributions
from specsim.models import Mixture, Model, Processed, TableModel
from specsim.models._processed import process

P, Q = [0.5, 0.3, 0.2], [0.2, 0.3, 0.5]
SETTINGS = [{"temperature": 0.7}, {"temperature": 0.0}, {"top_k": 2}, {"top_p": 0.6}, {"min_p": 0.5}]
SETTINGS += [{"temperature": 1.5, "top_k": 2, "top_p": 0.9, "min_p": 0.1}]


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_one_row_is_bit_for_bit_that_of_many(setting):
    target, draft = default_pair()
    some = target.contexts[:60]
    for model in (target.processed(**setting), Mixture(draft, target, 0.3).processed(**setting)):
        rows = model.rows(some)
        assert all(np.array_equal(model.row(context), row) for context, row in zip(some, rows, strict=True))
        out = np.empty_like(rows)
        assert model.rows(some, out) is out
        assert np.array_equal(out, rows)
        assert isinstance(model, Model)


def test_the_steps_are_those_of_distributions_in_the_order_of_transformers():
    expected = distributions.temperature(P, 0.5)
    expected = distributions.top_p(distributions.top_k(expected, 2), 0.8)
    assert np.array_equal(process(P, temperature=0.5, top_k=2, top_p=0.8), expected)
    assert np.array_equal(process(P), P)
    # another order gives another law, so the order is one
    other = distributions.temperature(distributions.top_p(P, 0.6), 0.5)
    assert not np.allclose(process(P, temperature=0.5, top_p=0.6), other)


def test_the_text_of_a_processed_model_has_its_law():
    """Tokens of a simulated run, of which every one but the first is a fraction of p at that temperature."""
    model = TableModel(P).processed(temperature=0.5)
    run = specsim.simulate(model, TableModel(Q), steps=50_000, rng=1)
    law = distributions.temperature(P, 0.5)
    right, wrong = (specsim.stats.chi_square(run.tokens, np.asarray(one)).p_value for one in (law, P))
    assert right > 1e-6
    assert wrong < 1e-6, "the law at temperature 1 is rejected"


def test_a_processed_model_can_be_processed_and_nothing_but_a_model():
    exact = TableModel([Fraction(1, 2), Fraction(1, 3), Fraction(1, 6)])
    twice = exact.processed(temperature=0.5).processed(top_k=1)
    assert twice.row([]).tolist() == [1.0, 0.0, 0.0]
    assert (twice.vocab_size, twice.order, twice.reads_all) == (3, 0, False)
    assert np.array_equal(twice.contexts, exact.contexts)
    with pytest.raises(TypeError, match="model: expected"):
        Processed(P)


@refused(
    ({"temperature": -1.0}, "temperature: -1"),
    ({"temperature": float("nan")}, "temperature: nan"),
    ({"top_k": 0}, "top_k: 0 is not at least 1"),
    ({"top_p": 0.0}, r"top_p: 0.0 is outside \(0, 1\]"),
    ({"min_p": 2.0}, "min_p: 2.0 is outside"),
)
def test_values_out_of_range_are_refused_at_once(setting):
    TableModel(P).processed(**setting)
