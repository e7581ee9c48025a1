"""Cost models: limits that are known in closed form, what each is for, and bad input."""

from dataclasses import replace

import numpy as np
import pytest

from specsim.planning import (
    ConstantRatio,
    Experts,
    Hardware,
    Network,
    Roofline,
    best_gamma,
    critical_context,
    improvement,
)
from specsim.planning._costs import experts_touched
from specsim.theory import optimal_gamma, oracle_improvement, walltime_improvement

GPU = Hardware(bandwidth=2e12, flops=300e12)
LARGE, SMALL = Network(7e9, cache_bytes_per_token=5e5), Network(7e7, cache_bytes_per_token=1e4)


@pytest.mark.parametrize("c", [0.0, 0.02, 0.3])
@pytest.mark.parametrize("alpha", [0.3, 0.8])
def test_a_constant_ratio_is_theorem_3_8(alpha, c):
    for gamma in (0, 1, 5):
        expected = walltime_improvement(alpha, gamma, c)
        assert improvement(ConstantRatio(c), alpha, gamma) == pytest.approx(expected)
    assert best_gamma(ConstantRatio(c), alpha, max_gamma=30) == optimal_gamma(alpha, c, max_gamma=30)
    assert improvement(ConstantRatio(c, overhead=0.5), alpha, 3) < improvement(ConstantRatio(c), alpha, 3)
    assert improvement(ConstantRatio(c), alpha, 4) <= oracle_improvement(alpha, c)


def test_bound_by_memory_the_roofline_is_a_constant_ratio():
    cost = Roofline(LARGE, SMALL, GPU)
    assert cost.step(5) == pytest.approx(5 * 7e7 / 7e9 + 1.0)
    assert cost.free_tokens == int(GPU.flops * 2 / (2 * GPU.bandwidth))
    assert Roofline(LARGE, SMALL, GPU, batch=10).free_tokens == cost.free_tokens // 10


def test_bound_by_arithmetic_verification_costs_what_it_computes():
    slow = Roofline(LARGE, SMALL, replace(GPU, flops=1e9))
    assert slow.free_tokens == 1
    assert slow.step(5) == pytest.approx(6 + 5 * 0.01)
    assert best_gamma(slow, 0.8) == 0


def test_the_best_gamma_falls_with_the_batch():
    """Synergy of batching and speculation, arXiv 2310.18813."""
    best = [best_gamma(Roofline(LARGE, SMALL, GPU, batch=batch), 0.8) for batch in (1, 16, 64, 128, 512)]
    assert best == sorted(best, reverse=True)
    assert best[0] > 5
    assert best[-1] <= 1


def test_long_contexts_make_large_batches_gain_again():
    """MagicDec, arXiv 2408.11049: with a draft on a sparse cache, batches help from some context on."""
    cost = Roofline(LARGE, SMALL, GPU, batch=64, draft_context=512)
    critical = critical_context(cost, 0.8, 4)
    assert critical is not None
    for context, rises in ((critical * 0.5, False), (critical * 2, True)):
        costs = (replace(cost, context=context, batch=batch) for batch in (64, 128))
        here, twice = (improvement(one, 0.8, 4) for one in costs)
        assert (twice >= here) is rises
    long = replace(cost, context=1e5)
    assert improvement(long, 0.8, 4) > improvement(replace(long, draft_context=None), 0.8, 4)
    assert critical_context(Roofline(Network(7e9), SMALL, GPU, batch=32), 0.8, 4) is None  # no cache to read


def test_experts_touched_by_choice_alone():
    rng = np.random.default_rng(4)
    for count, active, tokens in ((8, 2, 3), (16, 1, 10), (4, 4, 2)):
        order = rng.permuted(np.broadcast_to(np.arange(count), (4000, tokens, count)), axis=-1)
        chosen = np.eye(count)[order[..., :active]]  # [4000, tokens, active, count]
        seen = (chosen.sum(axis=(1, 2)) > 0).sum(axis=-1)
        expected = experts_touched(count, active, tokens)
        assert seen.mean() == pytest.approx(expected, abs=5 * count / 4000**0.5 / 2)
    assert experts_touched(256, 8, 0) == 0.0
    assert [round(experts_touched(256, 10, tokens), 1) for tokens in (5, 16)] == [46.2, 120.7]
    assert experts_touched(64, 8, 1) == pytest.approx(8.0)


def test_few_tokens_touch_more_experts_and_make_verification_dear():
    dense = Network(2e9)
    sparse = Network(2e9, experts=Experts(64, 4, 2e8))
    for network, dearer in ((dense, False), (sparse, True)):
        assert (Roofline(network, SMALL, GPU).step(4) > 1.0 + 4 * 0.04 + 1e-9) is dearer
    many = [Roofline(sparse, SMALL, GPU, batch=batch).step(4) for batch in (1, 8, 32)]
    assert many == sorted(many, reverse=True)  # once all are read anyway, more tokens cost nothing


def test_a_tree_is_paid_by_depth_and_by_nodes():
    cost = Roofline(LARGE, SMALL, GPU)
    assert cost.step_of([1, 1, 1], 3) == pytest.approx(cost.step(3))
    assert cost.step_of([1, 4], 8) == pytest.approx(cost.step(2))  # bound by memory, nodes are free
    slow = replace(cost, hardware=replace(GPU, flops=1e9))
    assert slow.step_of([1, 4], 8) == pytest.approx(9 + 5 * 0.01)
