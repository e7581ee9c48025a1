"""Targets and drafts whose law depends on the context: Markov tables and byte-level n-grams.

A `Model` gives, for a history of tokens, the row (pmf over the vocabulary) of the next one. It reads the last
`order` tokens only, so that a whole run can be replayed from a few numbers.

What *contexts* means here: the places where a step of speculative decoding may begin. For the n-grams they
are positions in real text that was held out of training: each row of `contexts` is the `order` bytes in
front of one such position, all positions of the held-out files being equally likely. An average over
`contexts` is thus an average over real text, such as the `alpha_context` of a pair (target, draft), mean
over contexts of Σ_x min(p(x), q(x)). For a `TableModel` they are, unless others are given, all V^order
contexts, once each.

`default_pair()` is a 5-gram target and its 2-gram draft, trained on the source files of Python's standard
library; `build_pair` makes such a pair from any folder of text.

>>> target, draft = default_pair()
>>> target.rows(target.contexts[:100]).shape
(100, 256)
"""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
