"""Confidence-scheduled verification: cut the draft where its confidence is low, and verify what is before it.

Let i be the first position at which max q_i is below a threshold. The tokens before it are verified by the
standard rule; if all of them are accepted, the next token is drawn from p_i, as the bonus of the shorter
draft, and x_i and what follows are never looked at.

Lossless for a chain whose every token was sampled from the q handed over, with any confidence that is a
function of the tokens before x_i, their rows and that of x_i (docs/proofs.md).

Cheng et al., "DSpark: confidence-scheduled speculative decoding with semi-autoregressive generation", arXiv
2607.05147. Its confidence is the output of a head before x_i is known. The product along the chain estimates
how likely the prefix is to survive, and decides with the throughput of the server where to cut. Here max q is
the confidence, compared in floating point and then taken as given. A threshold of 0 is the standard rule.

Cost: as the standard rule, and a pass over q at each position from rows."""

from typing import Any

import numpy as np

from specsim.core._kernels import kernel
from specsim.core._types import Floats, Row
from specsim.core.distributions import copy_row
from specsim.rules._chain import standard
from specsim.rules._common import positions

recover_standard = standard.recover


def is_cut(q: Row, threshold: Any) -> bool:
    return float(max(q)) < float(threshold)


def acceptance(p: Row, q: Row, x: int, threshold: Any) -> Any:
    return 0 if is_cut(q, threshold) else standard.acceptance(p, q, x)


def recovered(p: Row, q: Row, x: int, threshold: Any) -> list[Any]:
    """The residual, or p where the draft is cut."""
    return list(p) if is_cut(q, threshold) else standard.recovered(p, q, x)


@kernel
def accept(p, q, x, u, values):
    return u * q[x] < p[x] and q.max() >= values[0]


@kernel
def recover(p, q, x, values, weights):
    if q.max() < values[0]:
        copy_row(p, weights)
    else:
        recover_standard(p, q, x, values, weights)


def shares(p: Floats, q: Floats, threshold: float) -> tuple[Floats, Floats, Floats]:
    return (np.zeros(q.size), p, p) if is_cut(q.tolist(), threshold) else standard.shares(p, q)


RULE = positions.rule("confidence_scheduled", (acceptance, recovered), (accept, recover), shares)
