"""Rules side by side: tokens per step against total variation, and acceptance against the number of drafts."""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
