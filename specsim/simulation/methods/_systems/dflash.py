"""DFlash: a block of tokens drafted in one pass, as by a diffusion model."""

from specsim.models import Pair, chain
from specsim.simulation.methods._method import Drafting, Method, count, layers, size_parameter


def make(pair: Pair, gamma: int, size: float) -> Drafting:
    return Drafting(pair, chain(gamma, block=gamma), (gamma,), size)


METHOD = Method(
    name="dflash",
    title="DFlash",
    citation="Chen et al. 2026, arXiv 2602.06036",
    rule="standard",
    modelled="One pass drafts a whole block: each token is drawn from q without sight of the block's others.",
    left_out="Denoising steps, and the target's features that the drafter reads.",
    make=make,
    parameters=(count("gamma", 15, "tokens of a block"), size_parameter(layers(5))),
)
