"""The audit: is a verifier exact, and if not, where does it deviate?"""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
