"""SpecInfer: a token tree of siblings sampled from the draft model."""

from specsim.models import Pair, branching
from specsim.simulation.methods._method import SMALL_MODEL, Drafting, Method, count, passes_of, size_parameter


def make(pair: Pair, depth: int, at: int, width: int, size: float) -> Drafting:
    if at > depth:
        raise ValueError(f"specinfer: at = {at} is below the deepest of {depth} levels")
    widths = [width if level == at else 1 for level in range(1, depth + 1)]
    return Drafting(pair, branching(*widths), passes_of(widths), size)


METHOD = Method(
    name="specinfer",
    title="SpecInfer",
    citation="Miao et al. 2024, arXiv 2305.09781",
    rule="recursive_rejection",
    modelled="A tree that branches into `width` i.i.d. samples at one level, by default the third of eight.",
    left_out="Several draft models, and merging of their trees.",
    make=make,
    parameters=(
        count("depth", 8, "levels of the tree", 32),
        count("at", 3, "the level that branches", 32),
        count("width", 3, "siblings there", 16),
        size_parameter(SMALL_MODEL),
    ),
)
