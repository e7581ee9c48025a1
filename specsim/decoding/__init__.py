"""The loop of speculative decoding: draft, score the draft in one pass of the target, verify, repeat.

`specsim.generate` decodes speculatively, `specsim.sample` from the target alone. `record` and `record_hf` log
p and q of each step in a trace: each step continues where the last one ended, in the target's own text."""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
