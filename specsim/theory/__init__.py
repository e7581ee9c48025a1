"""What can be computed without drawing anything: acceptance, tokens per step, and bounds on both.

`acceptance.py` has one draft and acceptances that are independent; `speed.py` what follows for wall time and operations,
and the best γ; `positions.py` acceptances that depend on position and context; `many_drafts.py` K drafts of one token, the
best that any verifier can do with them and what known ones do; `block.py` accepted lengths of block verification;
`published.py` sets the printed numbers of `printed.py` beside recomputed ones; both are imported by their full names.
"""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
