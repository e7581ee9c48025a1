"""Falcon: a semi-autoregressive drafter, which writes several tokens in one pass."""

from specsim.models import Pair, chain
from specsim.simulation.methods._method import ONE_LAYER, Drafting, Method, count, size_parameter


def make(pair: Pair, gamma: int, block: int, size: float) -> Drafting:
    blocks = -(-gamma // block)
    return Drafting(pair, chain(gamma, block=block), (1, *[block] * (blocks - 1)), size)


METHOD = Method(
    name="falcon",
    title="Falcon",
    citation="Gao et al. 2024, arXiv 2412.12639",
    rule="standard",
    modelled="Blocks of `block` tokens: those of a block are drawn without sight of each other.",
    left_out="Trees, and the loss that makes tokens of a block agree.",
    make=make,
    parameters=(
        count("gamma", 6, "drafted tokens"),
        count("block", 2, "tokens of a pass", 16),
        size_parameter(ONE_LAYER),
    ),
)
