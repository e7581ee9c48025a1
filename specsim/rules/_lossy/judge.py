"""Judge decoding, simulated: a draft that the standard rule rejects is accepted anyway with probability j.

With a = min(1, p(x)/q(x)), accept x with probability a + (1 - a)·j, tested with one uniform, else emit a
token from (p - q)₊, normalised; the bonus comes from p. A token follows π = (1 - j)·p + j·q at drafted
positions, and a draft is rejected with probability (1 - j)·TV(p, q). It is `ensemble` with weight 1 - j under
another name.

Bachmann et al., "Judge decoding", arXiv 2501.19309, train a head on the target's embeddings that classifies
drafts as good enough, and accept what it or the standard rule accepts. Its verdicts cannot be computed from
rows of probabilities, so coins replace them here. The speed is right if j is the share of rejected drafts
that the head lets pass; π is right only if that share is the same for all tokens. Cost: as the standard rule.
"""

from typing import Any

from specsim.core._kernels import inner_kernel
from specsim.core._types import Floats, Row
from specsim.core.distributions import capped_ratio
from specsim.rules._chain import standard


def acceptance(p: Row, q: Row, x: int, overrule: Any) -> Any:
    passed = min(1, p[x] / q[x])
    return passed + (1 - passed) * overrule


def declared(p: Row, q: Row | None, position: int, overrule: Any) -> list[Any]:
    return list(p) if q is None else [(1 - overrule) * a + overrule * b for a, b in zip(p, q, strict=True)]


def chance(p: Floats, q: Floats, overrule: float) -> Floats:
    """The probability of accepting a token, given its own p and q: it rises with a, as a·(1 - j) + j does."""
    return (1 - overrule) * capped_ratio(p, q) + overrule


@inner_kernel
def accept(p, q, x, u, values):
    return u * q[x] < p[x] + values[0] * max(q[x] - p[x], 0.0)


RULE = standard.with_test("judge", acceptance, accept, chance, declared=declared)
