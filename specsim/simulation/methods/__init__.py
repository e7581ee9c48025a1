"""Drafting systems of the literature by name: what is drafted, how it is drawn,
which rule verifies it, and what the drafts cost.

`specsim.simulate(target, draft, method="eagle2:nodes=30")` simulates one on a pair of target and draft, and
`specsim.planning.compare_methods` all of them beside each other.

Examples
--------
>>> from specsim.simulation import methods
>>> print(methods.get("eagle2").rule, *methods.names()[:3])
deterministic_children autoregressive blockwise dflash
"""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
