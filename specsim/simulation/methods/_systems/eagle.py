"""EAGLE-1: a static tree of the most probable tokens of a drafter with one decoder layer."""

from specsim.models import Pair, branching
from specsim.simulation.methods._method import ONE_LAYER, Drafting, Method, count, passes_of, size_parameter
from specsim.simulation.methods._systems.medusa import widths_of


def make(pair: Pair, depth: int, top: int, size: float) -> Drafting:
    widths = widths_of(depth, top)
    return Drafting(pair, branching(*widths, sampling="top"), passes_of(widths), size)


METHOD = Method(
    name="eagle",
    title="EAGLE-1",
    citation="Li et al. 2024, arXiv 2401.15077",
    rule="deterministic_children",
    modelled="The same tree in every step: the most probable `top`, top/2, … tokens of q after each path.",
    left_out="The features of the target that q is computed from, and siblings that are sampled.",
    make=make,
    parameters=(
        count("depth", 5, "levels of the tree", 16),
        count("top", 4, "children of the root; half as many at each further level"),
        size_parameter(ONE_LAYER),
    ),
)
