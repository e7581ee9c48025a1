"""Drafts: the shape of the drafted tree, how siblings are sampled, and drafts made from text.

A `Tree` is fixed, a `DynamicTree` is chosen by the draft's own probabilities (EAGLE-2), and `best_tree` by
dynamic programming (Sequoia). Prompt lookup and lookahead decoding draft without a draft model.
"""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
