"""MLP speculator: a head for each position that sees the tokens sampled before it."""

from specsim.simulation.methods._method import ONE_HEAD, Method, count, size_parameter
from specsim.simulation.methods._systems.autoregressive import make

METHOD = Method(
    name="mlp_speculator",
    title="MLP speculator",
    citation="Wertheimer et al. 2024, arXiv 2404.19124",
    rule="standard",
    modelled="A chain in which each head's row depends on the tokens drafted before it, as q does.",
    left_out="Heads that grow worse with their distance, and several candidates a head.",
    make=make,
    parameters=(
        count("gamma", 3, "heads", 16),
        size_parameter(ONE_HEAD, "a head's parameters / the target's"),
    ),
)
