"""What is drafted in a step: the shape of the tree, how siblings are drawn, and what a drafted token may have seen.

A draft is a tree of tokens. `tree.py` has its shape and its enumeration, `drawing.py` the ways of drawing the
children of a node. Shapes that are chosen: `dynamic.py` by the draft's own probabilities (EAGLE-2), `sequoia.py` by
dynamic programming. Drafts without a draft model: `lookup.py` from the text so far, `pool.py` from a pool of n-grams
(lookahead decoding).
"""

from specsim.drafts.drawing import DRAWINGS, draw_siblings, sibling_laws
from specsim.drafts.dynamic import DynamicTree, dynamic_drafts, expand
from specsim.drafts.lookup import PromptLookup, lookup_drafts, prompt_lookup
from specsim.drafts.pool import Lookahead
from specsim.drafts.sequoia import best_tree, expected_tokens_of_tree, rank_acceptance
from specsim.drafts.tree import MAX_NODES, Tree, as_tree, branching, chain, chains

#: What a step can draft: the same tree every time, or one that the draft chooses.
Draft = Tree | DynamicTree

__all__ = [
    "DRAWINGS",
    "MAX_NODES",
    "Draft",
    "DynamicTree",
    "Lookahead",
    "PromptLookup",
    "Tree",
    "as_tree",
    "best_tree",
    "branching",
    "chain",
    "chains",
    "draw_siblings",
    "dynamic_drafts",
    "expand",
    "expected_tokens_of_tree",
    "lookup_drafts",
    "prompt_lookup",
    "rank_acceptance",
    "sibling_laws",
]
