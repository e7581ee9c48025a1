"""Ensemble verification: the standard rule against a mixture of target and draft, π = w·p + (1 - w)·q.

Accept x with probability min(1, π(x)/q(x)), else emit a token from (π - q)₊ = w·(p - q)₊, normalised; the
bonus comes from p. Drafted positions follow π exactly. So TV(π, p) = (1 - w)·TV(p, q), and a draft is
rejected with probability w·TV(p, q): the two add up to TV(p, q), the least that any rule can pay (Yin et al.,
arXiv 2411.00841).

`assistant_ensemble_weight` = w in Hugging Face transformers. `judge` with overrule 1 - w accepts and recovers
alike, and so follows the same π. Cost: as the standard rule."""

from typing import Any

from specsim.core._kernels import inner_kernel
from specsim.core._types import Floats, Row
from specsim.core.distributions import capped_ratio
from specsim.rules._chain import standard


def acceptance(p: Row, q: Row, x: int, weight: Any) -> Any:
    return min(1, (weight * p[x] + (1 - weight) * q[x]) / q[x])


def declared(p: Row, q: Row | None, position: int, weight: Any) -> list[Any]:
    return list(p) if q is None else [weight * a + (1 - weight) * b for a, b in zip(p, q, strict=True)]


def chance(p: Floats, q: Floats, weight: float) -> Floats:
    """The probability of accepting a token, from its own p and q: min(1, π/q) = w·min(1, p/q) + 1 - w."""
    return weight * capped_ratio(p, q) + (1 - weight)


@inner_kernel
def accept(p, q, x, u, values):
    return u * q[x] < values[0] * p[x] + (1.0 - values[0]) * q[x]


RULE = standard.with_test("ensemble", acceptance, accept, chance, declared=declared)
