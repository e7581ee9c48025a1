"""Which γ and which draft to take: cost models, plans, and policies that choose the draft length step by step."""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
