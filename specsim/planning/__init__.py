"""Choose γ and the draft: cost models, plans, and draft-length policies, which choose γ step by step."""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
