"""Speculative cascade, difference of confidences: the target takes over where it is surer than the draft.

The standard rule against

    π = p  if max q < max p - α,  else q,

as `_common/deferral.py` says.

Narasimhan et al., "Faster cascades via speculative decoding", arXiv 2405.19261, the deferral rule named Diff.

Cost: two maxima a position more than the standard rule from rows; the same for a fixed pair."""

from typing import Any

from specsim.core._kernels import kernel
from specsim.core._types import Row
from specsim.rules._common import deferral


def follows_target(p: Row, q: Row, alpha: Any) -> bool:
    return float(max(q)) < float(max(p)) - float(alpha)


@kernel
def defers(p, q, alpha):
    return q.max() < p.max() - alpha


RULE = deferral.rule("cascade_diff", follows_target, defers)
