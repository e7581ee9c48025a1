"""The whole loop of speculative decoding: draft, one pass of the target, verify, go on from what came out.

`loop.py` has `generate`, and `sample`, the target alone; `sides.py` what the draft and the target each remember from
step to step; `generation.py` the text that comes out and the numbers beside it.
"""

from specsim.decoding.generation import Generation, Step
from specsim.decoding.loop import DRAFTINGS, generate, sample

__all__ = ["DRAFTINGS", "Generation", "Step", "generate", "sample"]
