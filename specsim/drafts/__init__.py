"""What is drafted in a step: the shape of the tree, how siblings are drawn, and what a drafted token may have seen.

A draft is a tree of tokens. `tree.py` has its shape and its enumeration, `drawing.py` the ways of drawing the
children of a node. Shapes that are chosen: `dynamic.py` by the draft's own probabilities (EAGLE-2), `sequoia.py` by
dynamic programming. Drafts without a draft model: `lookup.py` from the text so far, `pool.py` from a pool of n-grams
(lookahead decoding).
"""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
