"""Typical acceptance: keep tokens above a threshold that falls with the target's entropy, else the argmax.

Accept x iff p(x) > t = min(ε, δ·exp(-H)), where H = -Σ p·log(p + 10^-5) in natural logarithms, else emit
argmax p, the lowest token among ties; the bonus is argmax p too. With S = {x: p(x) > t} a token follows

    π = q·1_S + (1 - q(S))·1_argmax

at drafted positions. The threshold is computed in floating point and then taken as given.

Cai et al., "Medusa", arXiv 2401.10774, and its code, from which the 10^-5 comes. `medusa_generate` runs it
with ε = .09 (`posterior_threshold`) and δ = .3 (`posterior_alpha`, recommended to be the root of ε). The
function that does the test has .3 and .09 as its own defaults, and with these ε never binds, because exp(-H)
is about 1 at most. We verify a chain; Medusa takes the longest accepted path of a tree, the likeliest among
those of equal length.

Nothing is random in the verification. Cost: O(V) a position from rows, O(1) for a fixed pair."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specsim.core._elementary import exp, log
from specsim.core._kernels import inner_kernel
from specsim.core._types import Floats, Row
from specsim.rules._chain import greedy_match


def acceptance(p: Row, q: Row, x: int, epsilon: Any, delta: Any) -> Any:
    entropy = -sum(float(weight) * math.log(float(weight) + 1e-5) for weight in p)
    return 1 if float(p[x]) > min(float(epsilon), float(delta) * math.exp(-entropy)) else 0


def declared(p: Row, q: Row | None, position: int, epsilon: Any, delta: Any) -> list[Any]:
    perplexity = math.prod((float(a) + 1e-5) ** -float(a) for a in p)
    lowest = min(float(epsilon), float(delta) / perplexity)
    return greedy_match.declared_of(p, q, [float(a) > lowest for a in p])


@inner_kernel
def threshold(p, epsilon, delta):
    """t = min(ε, δ·exp(-H))."""
    entropy = 0.0
    for y in range(p.size):
        entropy -= p[y] * log(p[y] + 1e-5)
    return min(epsilon, delta * exp(-entropy))


@inner_kernel
def accept(p, q, x, u, values):
    return p[x] > threshold(p, values[0], values[1])


def passing(p: Floats, epsilon: float, delta: float) -> NDArray[np.bool_]:
    return p > threshold(p, epsilon, delta)


RULE = greedy_match.with_test("typical", acceptance, accept, passing, declared=declared)
