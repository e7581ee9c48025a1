"""Medusa: independent heads, whose most probable tokens form a Cartesian tree."""

import numpy as np

from specsim.core._types import Floats
from specsim.core.distributions import check_rows
from specsim.models import Model, Pair, branching, rows_ahead, tree_of_heads
from specsim.rules import Parameter
from specsim.simulation.methods._method import ONE_HEAD, Drafting, Method, count, own_text, size_parameter

#: Ranks of a head that are considered, and how many places of the text lie between two that are counted.
RANKS, PLACES = 10, 4


def widths_of(heads: int, top: int) -> list[int]:
    """The children at each depth: `top`, and half as many at each further one."""
    return [max(1, top >> depth) for depth in range(heads)]


def make(pair: Pair, heads: int, top: int, nodes: int, size: float) -> Drafting:
    if nodes:
        tree = tree_of_heads(accuracies(pair, heads), nodes)
    else:
        tree = branching(*widths_of(heads, top), sampling="top", block=heads)
    return Drafting(pair, tree, (1,), heads * size)


def accuracies(pair: Pair, heads: int) -> Floats:
    """How often the token of each rank of each head is the target's, [heads, ranks], along a text of its own.

    Of two pmfs the probabilities themselves."""
    if not isinstance(pair.target, Model):
        p, q = check_rows(pair.target, "target"), check_rows(pair.draft, "draft")
        return _falling(np.tile(p[np.argsort(-q, kind="stable")][:RANKS], (heads, 1)))
    text, order = own_text(pair.target), max(pair.target.order, pair.draft.order)
    places = np.arange(order, len(text) - heads, PLACES)
    seen = text[places[:, None] + np.arange(-order, 0)]
    found = np.zeros((heads, min(RANKS, pair.target.vocab_size)))
    for head in range(heads):
        rows = rows_ahead(pair.draft, seen, head)
        ranked = np.argsort(-rows, axis=1, kind="stable")[:, :RANKS]
        found[head] = (ranked == text[places + head][:, None]).mean(axis=0)
    return _falling(found)


def _falling(found: Floats) -> Floats:
    """The same where no rank is more often right than the one before it."""
    return np.minimum.accumulate(found, axis=1)


METHOD = Method(
    name="medusa",
    title="Medusa",
    citation="Cai et al. 2024, arXiv 2401.10774",
    rule="deterministic_children",
    modelled="Head i knows the context and no drafted token: its row is that of the draft i tokens ahead. "
    "The most probable `top`, top/2, … tokens of the heads form a tree, verified without loss; with `nodes` "
    "the tree of so many tokens that suits the heads' accuracies along a text of the target's own.",
    left_out="How the heads were trained; typical acceptance is `medusa_typical`.",
    make=make,
    parameters=(
        count("heads", 4, "heads, the depth of the tree", 16),
        count("top", 4, "tokens of the first head; each further head has half as many"),
        Parameter("nodes", 0.0, 0.0, 256.0, "tokens of the fitted tree; 0: `top` decides", whole=True),
        size_parameter(ONE_HEAD, "parameters of a head / the target's"),
    ),
)
