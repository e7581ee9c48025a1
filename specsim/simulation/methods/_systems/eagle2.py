"""EAGLE-2: a dynamic tree of the draft's most confident paths."""

from specsim.models import DynamicTree, Pair
from specsim.simulation.methods._method import (
    ONE_LAYER,
    Drafting,
    Method,
    as_models,
    count,
    moved,
    size_parameter,
)


def make(pair: Pair, width: int, depth: int, nodes: int, size: float, nearer: float = 0.0) -> Drafting:
    shape = DynamicTree(width, depth, nodes)
    return Drafting(Pair(*as_models(moved(pair, nearer))), shape, (1, *[width] * (depth - 1)), size)


METHOD = Method(
    name="eagle2",
    title="EAGLE-2",
    citation="Li et al. 2024, arXiv 2406.16858",
    rule="deterministic_children",
    modelled="The draft's confidence chooses the tree anew in every step.",
    left_out="The features of the target that q is computed from.",
    make=make,
    parameters=(
        count("width", 10, "candidates that are expanded in a level"),
        count("depth", 6, "levels of the tree", 32),
        count("nodes", 60, "drafted tokens"),
        size_parameter(ONE_LAYER),
    ),
)
