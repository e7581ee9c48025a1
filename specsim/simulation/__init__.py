"""Monte Carlo simulation of rules: single steps, whole runs, and comparisons of rules."""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
