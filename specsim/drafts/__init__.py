"""What is drafted in a step: the shape of the tree, how siblings are drawn, and what a drafted token may have seen.

A draft is a tree of tokens. `tree.py` has its shape and its enumeration, `drawing.py` the ways of drawing the
children of a node.
"""

from specsim.drafts.drawing import DRAWINGS, draw_siblings, sibling_laws
from specsim.drafts.tree import MAX_NODES, Tree, as_tree, branching, chain, chains

__all__ = [
    "DRAWINGS",
    "MAX_NODES",
    "Tree",
    "as_tree",
    "branching",
    "chain",
    "chains",
    "draw_siblings",
    "sibling_laws",
]
