"""SpecTr: several chains sampled side by side."""

from specsim.models import Pair, chains
from specsim.simulation.methods._method import SMALL_MODEL, Drafting, Method, count, size_parameter


def make(pair: Pair, drafts: int, gamma: int, size: float) -> Drafting:
    return Drafting(pair, chains(drafts, gamma), (1, *[drafts] * (gamma - 1)), size)


METHOD = Method(
    name="spectr",
    title="SpecTr",
    citation="Sun et al. 2023, arXiv 2310.15141",
    rule="k_seq",
    modelled="`drafts` chains of γ tokens, i.i.d. from q, selected token by token by K-SEQ.",
    left_out="The optimal transport plan, of which K-SEQ is an approximation.",
    make=make,
    parameters=(
        count("drafts", 8, "chains", 16),
        count("gamma", 4, "tokens of a chain", 16),
        size_parameter(SMALL_MODEL),
    ),
)
