"""Speculative cascade, Chow's rule: the target takes over where the draft is not confident enough.

The standard rule against

    π = p  if max q < 1 - α,  else q,

as `_common/deferral.py` says.

Narasimhan et al., "Faster cascades via speculative decoding", arXiv 2405.19261, the deferral rule named Chow.

Cost: a maximum over q a position more than the standard rule from rows; the same for a fixed pair."""

from typing import Any

from specsim.core._kernels import kernel
from specsim.core._types import Row
from specsim.rules._common import deferral


def follows_target(p: Row, q: Row, alpha: Any) -> bool:
    return float(max(q)) < 1 - float(alpha)


@kernel
def defers(p, q, alpha):
    return q.max() < 1.0 - alpha


RULE = deferral.rule("cascade_chow", follows_target, defers)
