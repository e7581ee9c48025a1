"""Traversal verification of siblings drawn without replacement.

As `traversal`, with one more step when a child x is given up: the draft's row at its parent loses x and is
renormalised. A child x has w_x < 1 when it is given up, so M_u has lost x already, and no token is ever
drafted, or drawn, again. Where q has fewer tokens than there are children, those that fill up (q = 0) are
never tried.

Lossless for siblings drawn without replacement, tried in the order in which they were drawn.

Weng et al., "Traversal verification for speculative tree decoding", arXiv 2505.12398; the drawing is that of
Sequoia (Chen et al., arXiv 2402.12374) and RSD (Jeon et al., arXiv 2402.14160).

Cost: a uniform for each node and one for the last token; O(n·V) from rows, O(n·(n + log V)) for a fixed pair.
"""

from functools import partial

from specsim.rules._chain.block import survival
from specsim.rules._common.base import named
from specsim.rules._tree.traversal import fixed_pair, rows, traverse

law = partial(traverse, replaced=False)

RULE = named("traversal_without_replacement", law, rows(False), fixed_pair(False), survival=survival)
