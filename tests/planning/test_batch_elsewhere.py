"""The simulated server beside another simulator of speculative decoding, on the same input."""

import pytest

from specsim.planning import BatchCost, Constant, Hardware, Network, PassTime, sweep_batch

#: The coefficients in seconds that the simulator of SpecDecode-Bench has for Llama 3.1 8B with EAGLE on an H100
#: (github.com/SpecDecode-Bench/simulator, 2fdccbd; arXiv 2601.11580): of a pass of the target, with the
#: overhead of a step, and of a step's draft, whose time does not depend on how many tokens a batch drafts.
FIXED, OVERHEAD, TOKEN, CACHED = 5.88590713e-03, 1.20683946e-03, 2.10103129e-05, 3.92645679e-08
DRAFT, DRAFT_TOKEN, DRAFT_CACHED = 2.13526175e-03, 8.41429603e-07, 2.37768493e-09
#: The gain in throughput that it computes, by γ and batch, for 300 requests of 400 tokens after 8, whose
#: accepted lengths were drawn with α = 0.7 at every position. Of each draw its standard error is about .1 %.
GAINS = {
    (1, 1): 1.30171, (1, 16): 1.27694, (1, 128): 1.16821,
    (3, 1): 1.92748, (3, 16): 1.78022, (3, 128): 1.29591,
    (5, 1): 2.22338, (5, 16): 1.94145, (5, 128): 1.19824,
}  # fmt: skip


def reads(seconds):
    """A network whose passes take that many seconds for each cached token, and nothing else."""
    return {"network": Network(1e-9, cache_bytes_per_token=seconds * 1e12), "hardware": Hardware(1e12, 1e20)}


def gain(gamma, batch, overhead=OVERHEAD, cached=CACHED):
    target = PassTime(fixed=FIXED + overhead, per_token=TOKEN, **reads(cached))
    draft = PassTime(fixed=(DRAFT + (gamma + 1) * DRAFT_TOKEN) / gamma, **reads(DRAFT_CACHED / gamma))
    settings = {"alpha": 0.7, "prompt": 8, "output": 400, "prefill": False, "requests": max(400, 20 * batch)}
    over = {"max_batch": [batch]}
    found = sweep_batch(BatchCost(target, draft), Constant(gamma), over=over, **settings, rng=1)
    return found.capacity_gain(0).mean


@pytest.mark.parametrize(
    ("gamma", "batch"),
    [pytest.param(*one, marks=() if one in ((5, 1), (5, 128)) else pytest.mark.slow) for one in GAINS],
)
def test_the_gain_is_that_of_another_simulator(gamma, batch):
    assert gain(gamma, batch) == pytest.approx(GAINS[gamma, batch], rel=4e-3)


def test_other_costs_give_other_gains():
    assert gain(5, 1, overhead=0.0) != pytest.approx(GAINS[5, 1], rel=4e-3)
    assert gain(5, 128, cached=0.0) != pytest.approx(GAINS[5, 128], rel=4e-3)
