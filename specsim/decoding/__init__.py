"""The loop of speculative decoding: draft, score the draft in one pass of the target, verify, repeat.

`generate` decodes speculatively, `sample` from the target alone; both return a `Generation`.
"""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
