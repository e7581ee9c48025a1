"""EAGLE-3: a dynamic tree of the draft's most confident paths."""

from specsim.rules import Parameter
from specsim.simulation.methods._method import ONE_LAYER, Method, count, size_parameter
from specsim.simulation.methods._systems.eagle2 import make

METHOD = Method(
    name="eagle3",
    title="EAGLE-3",
    citation="Li et al. 2025, arXiv 2503.01840",
    rule="deterministic_children",
    modelled="EAGLE-2's tree, with a draft moved towards the target by the weight `nearer`.",
    left_out="Features of several layers, and training on the drafter's own outputs: both are taken to make "
    "q better, by one number.",
    make=make,
    parameters=(
        count("width", 10, "candidates that are expanded in a level"),
        count("depth", 8, "levels of the tree", 32),
        count("nodes", 60, "drafted tokens"),
        Parameter("nearer", 0.3, 0.0, 1.0, "weight of the target in the draft's rows"),
        size_parameter(ONE_LAYER),
    ),
)
