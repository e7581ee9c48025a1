"""Record traces along speculative trajectories, of two specsim models or of two Hugging Face models.

Each step continues where the last one ended, so the contexts are those of the target's own text.
"""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
