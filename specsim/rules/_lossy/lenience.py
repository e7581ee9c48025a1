"""Lenience: multiply q by l before comparing, so that more drafts pass; recover from the residual (p - q)₊.

Accept x with probability min(1, p(x)/(l·q(x))), l in (0, 1], else emit a token from (p - q)₊, normalised; the
bonus comes from p. With α(l) = Σ min(p/l, q) a token follows

    π = min(p/l, q) + (1 - α(l))·(p - q)₊ / (1 - α(1)),

and no token is more than 1/l times as probable as under p. With this residual TV(π, p) = α(l) - α(1) exactly:
every point of acceptance gained is paid for by one of total variation, the least that any rule can pay (Yin
et al., arXiv 2411.00841). `scaled_lenience` takes the other residual in use, which pays more.

Leviathan, Kalman & Matias, arXiv 2211.17192, Appendix A.5, which does not say what is sampled after a
rejection. Their factors "1X, 2X, 3X, 10X" are l = 1, 0.5, 0.3, 0.1. Cost: as the standard rule."""

from typing import Any

from specsim.core._kernels import inner_kernel
from specsim.core._types import Floats, Row
from specsim.core.distributions import capped_ratio
from specsim.rules._chain import standard


def acceptance(p: Row, q: Row, x: int, lenience: Any) -> Any:
    return min(1, p[x] / (lenience * q[x]))


def declared(p: Row, q: Row | None, position: int, lenience: Any) -> list[Any]:
    if q is None:
        return list(p)
    alpha = sum(min(a, b) for a, b in zip(p, q, strict=True))
    lenient = sum(min(a / lenience, b) for a, b in zip(p, q, strict=True))
    share = (1 - lenient) / (1 - alpha) if alpha < 1 else 0
    return [min(a / lenience, b) + share * max(a - b, 0) for a, b in zip(p, q, strict=True)]


def chance(p: Floats, q: Floats, lenience: float) -> Floats:
    return capped_ratio(p, lenience * q)


@inner_kernel
def accept(p, q, x, u, values):
    return u * (values[0] * q[x]) < p[x]


RULE = standard.with_test("lenience", acceptance, accept, chance, declared=declared)
