"""A separate draft model that writes γ tokens one after another."""

from specsim.models import Pair, chain
from specsim.simulation.methods._method import SMALL_MODEL, Drafting, Method, count, moved, size_parameter


def make(pair: Pair, gamma: int, size: float, nearer: float = 0.0) -> Drafting:
    return Drafting(moved(pair, nearer), chain(gamma), (1,) * gamma, size)


METHOD = Method(
    name="autoregressive",
    title="Speculative decoding with a draft model",
    citation="Leviathan, Kalman & Matias 2023, arXiv 2211.17192; Chen et al. 2023, arXiv 2302.01318",
    rule="standard",
    modelled="A chain of γ tokens, each sampled from q after those before it.",
    left_out="Prefill of the draft model.",
    make=make,
    parameters=(count("gamma", 5, "drafted tokens"), size_parameter(SMALL_MODEL)),
)
