"""The whole loop of speculative decoding: draft, one pass of the target, verify, go on from what came out.

`loop.py` has `generate`, and `sample`, the target alone; `sides.py` what the draft and the target each remember from
step to step; `generation.py` the text that comes out and the numbers beside it.
"""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
