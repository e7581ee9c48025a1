"""Targets and drafts: models whose rows depend on the context, and the shapes of what a draft proposes.

A `Model` gives, for a history of tokens, the row (pmf over the vocabulary) of the next one. It reads only the
last `order` tokens, so that a whole run can be replayed from a few numbers.

*Contexts* are the places where a step of speculative decoding may begin. For n-grams they are positions in
text that was held out of training: each row of `contexts` has the `order` bytes before one of them, and all
are equally likely. So a mean over `contexts`, such as `alpha_context`, is a mean over real text. For a
`TableModel` they are by default all V^order contexts, once each.

`specsim.default_pair()` is a 5-gram target and its 2-gram draft, trained on the source files of Python's
standard library; `build_pair` trains such a pair on any folder of text.

>>> from specsim import default_pair
>>> target, draft = default_pair()
>>> target.rows(target.contexts[:100]).shape
(100, 256)

*Drafts* are what is proposed for a step: a `Tree` is fixed, a `DynamicTree` is chosen by the draft's own
probabilities (EAGLE-2), and `best_tree` by dynamic programming (Sequoia). Prompt lookup and lookahead
decoding draft without a draft model.
"""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
