"""Drafting systems compared: their costs against those of the cost models, and the form of the result."""

import numpy as np
import pytest

import specsim
from specsim.models import Pair
from specsim.planning import Network, Roofline, compare_methods
from specsim.planning._methods import A100, CACHE_BYTES, step_cost
from specsim.simulation import methods
from specsim.simulation.methods import TARGET

PAIR = Pair([0.4, 0.3, 0.1, 0.1, 0.1], [0.2, 0.2, 0.3, 0.2, 0.1])


def cost_of(spec, batch=1, context=1024.0):
    return step_cost(methods.get(spec).drafting(PAIR), A100, batch, context)


def roofline(size, batch=1, context=1024.0):
    draft = Network(size * TARGET, cache_bytes_per_token=size * CACHE_BYTES)
    return Roofline(Network(TARGET, cache_bytes_per_token=CACHE_BYTES), draft, A100, batch, context)


@pytest.mark.parametrize("batch", [1, 256])
def test_chains_and_trees_cost_what_the_roofline_says(batch):
    assert cost_of("autoregressive:gamma=4,size=0.1", batch) == roofline(0.1, batch).step(4)
    assert cost_of("eagle:depth=3,top=4,size=0.05", batch) == roofline(0.05, batch).step_of([1, 4, 8], 20)


def test_what_costs_nothing_and_what_costs_more():
    assert cost_of("prompt_lookup") == pytest.approx(1.0)
    assert cost_of("prompt_lookup", batch=256) > 1.5
    assert cost_of("self_speculation:gamma=2,size=0.5") == pytest.approx(2.0, rel=0.01)
    assert cost_of("medusa:heads=2,size=0.1") == pytest.approx(1.2, rel=0.01)
    assert cost_of("medusa:heads=4,size=0.1") == pytest.approx(1.4, rel=0.01)


def test_a_comparison(tmp_path):
    chosen = ["autoregressive:gamma=3", "spectr:drafts=2,gamma=3", "blockwise:gamma=2"]
    found = compare_methods(PAIR, methods=chosen, steps=2000, rng=1)
    assert [one.method.partition(":")[0] for one in found.entries] == [
        "autoregressive", "spectr", "blockwise",
    ]  # fmt: skip
    assert [one.tv == 0 for one in found.entries] == [True, True, False]
    for one in found.entries:
        assert one.speed == pytest.approx(one.tokens_per_step / one.cost)
    run = specsim.simulate(PAIR, method=chosen[0], steps=2000, rng=1)
    assert found.entries[0].tokens_per_step == run.tokens_per_step
    assert [row["method"] for row in found.records()] == [one.method for one in found.entries]
    assert len(found.plot().patches) == 3
    assert {bar.get_width() for bar in found.plot(x="cost").patches} == {one.cost for one in found.entries}
    found.save(tmp_path / "found.json")
    assert specsim.load(tmp_path / "found.json") == found


def test_a_context_in_half_precision_does_not_overflow():
    given = {"methods": ["autoregressive"], "steps": 100, "rng": 1}
    one, other = (compare_methods(PAIR, context=of(1024), **given) for of in (float, np.float16))
    assert one.entries[0].cost == other.entries[0].cost


def test_more_sequences_make_drafted_tokens_cost():
    one, many = (compare_methods(PAIR, methods=["eagle"], batch=b, steps=100, rng=1) for b in (1, 512))
    assert one.entries[0].tokens_per_step == many.entries[0].tokens_per_step
    assert one.entries[0].speed > 1.5 * many.entries[0].speed


def test_what_is_refused():
    for what, given in (
        ("methods: none given; give some of autoregressive", {"methods": []}),
        ("unknown method 'medsua'; did you mean 'medusa'", {"methods": ["medsua"]}),
        ("context", {"context": -1.0}), ("batch: 0 is not at least 1", {"batch": 0}),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=what):
            compare_methods(PAIR, **given)
