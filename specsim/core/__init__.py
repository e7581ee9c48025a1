"""Foundations: arrays of probabilities, random streams, statistics of counts, compiled kernels, files."""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
