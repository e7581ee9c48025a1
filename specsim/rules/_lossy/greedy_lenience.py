"""Greedy lenience: accept what is at least l times as probable as the argmax; else emit the argmax.

Accept x iff p(x) ≥ l·max p, l in (0, 1], else emit argmax p, the lowest token among ties; the bonus is argmax
p too. With S = {x: p(x) ≥ l·max p} a token follows

    π = q·1_S + (1 - q(S))·1_argmax

at drafted positions. At l = 1 only the argmax passes, and what ties with it: on rows without ties,
`greedy_match`. What passes is decided in floating point, and then taken as given.

Leviathan, Kalman & Matias, arXiv 2211.17192, Appendix A.5, lenience at temperature 0, before p is made
one-hot. The paper prints the condition as p(x) ≤ l·max p, which would keep the improbable tokens; the sign is
meant as above.

Nothing is random in the verification. Cost: O(V) a position from rows, O(1) for a fixed pair."""

from typing import Any

from specsim.core._kernels import kernel
from specsim.core._types import Row
from specsim.rules._chain import greedy_match


def acceptance(p: Row, q: Row, x: int, lenience: Any) -> Any:
    return 1 if float(p[x]) >= float(lenience) * float(max(p)) else 0


def declared(p: Row, q: Row | None, position: int, lenience: Any) -> list[Any]:
    lowest = float(lenience) * float(max(p))
    return greedy_match.declared_of(p, q, [float(a) >= lowest for a in p])


@kernel
def accept(p, q, x, u, values):
    return p[x] >= values[0] * p.max()


RULE = greedy_match.with_test(
    "greedy_lenience", acceptance, accept, lambda p, lenience: p >= lenience * p.max(), declared=declared
)
