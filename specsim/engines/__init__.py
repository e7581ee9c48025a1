"""Planted checkpoints: real transformers, in an engine's own format, with a known next-token distribution."""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
