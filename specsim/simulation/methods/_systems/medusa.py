"""Medusa: independent heads, whose most probable tokens form a Cartesian tree."""

from specsim.drafts import branching
from specsim.models import Pair
from specsim.simulation.methods._method import Drafting, Method, count, size_parameter
from specsim.simulation.methods._sizes import ONE_HEAD


def widths_of(heads: int, top: int) -> list[int]:
    """The children at each depth: `top`, and half as many at each further one."""
    return [max(1, top >> depth) for depth in range(heads)]


def make(pair: Pair, heads: int, top: int, size: float) -> Drafting:
    return Drafting(pair, branching(*widths_of(heads, top), sampling="top", block=heads), (1,), heads * size)


METHOD = Method(
    name="medusa",
    title="Medusa",
    citation="Cai et al. 2024, arXiv 2401.10774",
    rule="deterministic_children",
    modelled="Head i knows the context and no drafted token: its row is that of the draft i tokens ahead. "
    "The most probable `top`, top/2, … tokens of the heads form a tree, verified without loss.",
    left_out="Typical acceptance on trees (the rule `typical` verifies a chain), and trees fitted to the "
    "heads' accuracies.",
    make=make,
    parameters=(
        count("heads", 4, "heads, the depth of the tree", 16),
        count("top", 4, "tokens of the first head; each further head has half as many"),
        size_parameter(ONE_HEAD, "parameters of a head / the target's"),
    ),
)
