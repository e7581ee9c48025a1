"""MARS: keep the target's argmax, and its runner-up where the ratio of their logits is near 1.

With z_1 ≥ z_2 the two largest logits of the target, accept its argmax, and the runner-up iff z_1 > 0 and
z_2/z_1 > θ, else emit the argmax, which is the bonus too. Among ties the lower token comes first. With S the
one or two tokens that pass, a token follows

    π = q·1_S + (1 - q(S))·1_argmax

at drafted positions.

Song et al., "MARS", arXiv 2601.15498, which reads raw logits. Their ratio changes when the same number is
added to all of them, which changes no probability, so it cannot be computed from rows of probabilities. Here
z = log p + L with one number for all rows, `log_partition` = L = log Σ exp(logits): the runner-up passes iff
p_1 > exp(-L) and p_2 > p_1^θ·exp(-(1 - θ)·L). Where z_1 ≤ 0, which the paper leaves open, or p_2 = 0, only
the argmax passes. Logarithms are computed in floating point, and how they compare is then taken as given.

Nothing is random in the verification. Cost: O(V) a position from rows, O(1) for a fixed pair."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specsim.core._elementary import log
from specsim.core._kernels import kernel
from specsim.core._types import Floats, Row
from specsim.models._drafts.sampling import rank_tokens
from specsim.rules._chain import greedy_match


def acceptance(p: Row, q: Row, x: int, theta: Any, log_partition: Any) -> Any:
    first, *others = rank_tokens(p)
    if x == first:
        return 1
    if x != others[0] or p[x] == 0:
        return 0
    z = [math.log(float(p[token])) + float(log_partition) for token in (first, x)]
    return 1 if z[0] > 0 and z[1] > float(theta) * z[0] else 0


def declared(p: Row, q: Row | None, position: int, theta: Any, log_partition: Any) -> list[Any]:
    best, *others = sorted(range(len(p)), key=lambda x: (-p[x], x))
    largest, partition, passing = math.log(p[best]), float(log_partition), [False] * len(p)
    if others and p[others[0]] > 0 and largest > -partition:
        margin = math.log(p[others[0]]) - float(theta) * largest
        passing[others[0]] = margin > (float(theta) - 1) * partition
    return greedy_match.declared_of(p, q, passing)


@kernel
def runner_up(p, theta, log_partition):
    """The second most probable token if it is near the first, else -1."""
    first, second = np.argmax(p), -1
    for y in range(p.size):
        if y != first and (second < 0 or p[y] > p[second]):
            second = y
    if second < 0 or p[second] == 0.0:
        return -1
    z = log(p[first]) + log_partition
    return second if z > 0.0 and log(p[second]) + log_partition > theta * z else -1


@kernel
def accept(p, q, x, u, values):
    return x == np.argmax(p) or x == runner_up(p, values[0], values[1])


def passing(p: Floats, theta: float, log_partition: float) -> NDArray[np.bool_]:
    return np.isin(np.arange(p.size), [p.argmax(), runner_up(p, theta, log_partition)])


RULE = greedy_match.with_test("mars", acceptance, accept, passing, declared=declared)
