"""Blockwise parallel decoding: heads of the target guess γ tokens at once, and its argmax accepts them."""

from specsim.models import Pair, chain
from specsim.simulation.methods._method import ONE_HEAD, Drafting, Method, count, size_parameter


def make(pair: Pair, gamma: int, size: float) -> Drafting:
    return Drafting(pair, chain(gamma, "top", block=gamma), (1,), gamma * size)


METHOD = Method(
    name="blockwise",
    title="Blockwise parallel decoding",
    citation="Stern, Shazeer & Uszkoreit 2018, arXiv 1811.03115",
    rule="greedy_match",
    modelled="Head i guesses the i-th token ahead from the context alone; a guess that is the target's "
    "argmax is accepted, so the text is greedy.",
    left_out="Top-k and distance criteria (the rule `blockwise`), and that one pass predicts and verifies.",
    make=make,
    parameters=(
        count("gamma", 8, "heads, the block size k"),
        size_parameter(ONE_HEAD, "parameters of a head / the target's"),
    ),
)
