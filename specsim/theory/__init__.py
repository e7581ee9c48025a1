"""Results without sampling: acceptance, tokens per step, speed-ups, bounds, and proofs by enumeration.

For one draft, formulas that assume independent acceptances, and their consequences for wall time, operations
and γ; acceptances that depend on position and context; K drafts of one token, the best that any verifier can
do and what known ones do; accepted lengths of block verification; distributions under token masks.
`specsim.prove` computes the distribution of a rule's output in fractions."""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
