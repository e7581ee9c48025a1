"""Sequoia: the tree that a dynamic program finds best, with siblings sampled without replacement."""

import numpy as np

from specsim.core.distributions import check_rows
from specsim.models import Model, Pair, best_tree, shared_contexts
from specsim.simulation.methods._method import SMALL_MODEL, Drafting, Method, count, size_parameter
from specsim.theory import acceptance_rate

#: Ranks of siblings that the program knows.
RANKS = 16
#: Contexts over which the acceptance rate is averaged.
CONTEXTS = 256


def make(pair: Pair, nodes: int, depth: int, size: float) -> Drafting:
    alpha = _acceptance(pair)
    ranks = [alpha * (1.0 - alpha) ** rank for rank in range(min(RANKS, nodes))]
    tree = best_tree(ranks, nodes, depth)
    levels = np.bincount(tree.depths)
    return Drafting(pair, tree, tuple(levels[:-1].tolist()), size)


def _acceptance(pair: Pair) -> float:
    """The mean Σ min(p, q) over contexts where steps begin."""
    if not isinstance(pair.target, Model):
        return float(acceptance_rate(check_rows(pair.target), check_rows(pair.draft)))
    contexts = shared_contexts(pair.target, pair.draft)
    some = contexts[:: -(-len(contexts) // CONTEXTS)]
    return float(np.mean(acceptance_rate(pair.target.rows(some), pair.draft.rows(some))))


METHOD = Method(
    name="sequoia",
    title="Sequoia",
    citation="Chen et al. 2024, arXiv 2402.12374",
    rule="without_replacement",
    modelled="The best tree of `nodes` tokens where the k-th sibling is accepted with probability "
    "α·(1 - α)^(k-1), α = E Σ min(p, q).",
    left_out="Acceptance by rank as measured on the models, and the search for the size that suits a "
    "machine.",
    make=make,
    parameters=(
        count("nodes", 32, "drafted tokens", 256),
        count("depth", 8, "the largest depth", 32),
        size_parameter(SMALL_MODEL),
    ),
)
