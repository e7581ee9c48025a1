"""Traces recorded along real speculative trajectories: of two models of ours, or of two of Hugging Face's.

Each step goes on where the last one ended, so the contexts met are those of the target's own text.
"""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
