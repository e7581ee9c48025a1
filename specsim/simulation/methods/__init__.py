"""Drafting systems of the literature by name: what is drafted, how it is drawn,
which rule verifies it, and what the drafts cost."""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
