"""Self-speculation: the target drafts with some of its layers."""

from specsim.simulation.methods._method import LAYERS, Method, count, layers, size_parameter
from specsim.simulation.methods._systems.autoregressive import make

METHOD = Method(
    name="self_speculation",
    title="Self-speculation with layers skipped",
    citation="Zhang et al. 2023, arXiv 2309.08168; Elhoushi et al. 2024 (LayerSkip), arXiv 2404.16710",
    rule="standard",
    modelled="A chain sampled from q, at the cost of half of the target's layers.",
    left_out="That q is the target's own, of fewer layers, and that LayerSkip's verification reuses them.",
    make=make,
    parameters=(
        count("gamma", 4, "drafted tokens"),
        size_parameter(layers(LAYERS // 2), "parameters of the layers that draft / those of the target"),
    ),
)
