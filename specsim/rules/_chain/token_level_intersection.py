"""Token-level intersection: a draft of another vocabulary, restricted to the tokens that the target has too.

Let S be the shared tokens and q' = q·1_S/q(S) the draft's row given that its token is shared. A drafted x in
S is verified by the standard rule with q' in place of q: accepted with probability min(1, p(x)/q'(x)), else a
token is emitted from (p - q')₊, normalised. A drafted x outside S is no token of the target: the step ends
there with a token from p, as after the draft's last token.

Lossless for a chain whose every token was sampled from the q handed over: given that x is in S it is a sample
of q', and the token follows p by the standard rule; given that it is not, the token is drawn from p. It must
be q' that is compared, not q: `intersection_unnormalised`.

Timor et al., "Accelerating LLM inference with lossless speculative decoding algorithms for heterogeneous
vocabularies", arXiv 2502.05202, token-level intersection. There the drafter samples from q' itself and never
leaves S; so it is here where q has no mass outside S, and elsewhere a step is longer in the paper. The two
vocabularies have one numbering here, in which the first `shared`·V tokens are shared; p may have mass on the
others, which are then recovered or bonus tokens.

Cost: as the standard rule, and a pass over q at each position from rows; O(log V) for a fixed pair."""

from typing import Any

import numpy as np

from specsim.core._kernels import inner_kernel
from specsim.core._types import Floats, Row
from specsim.core.distributions import capped_ratio, copy_row
from specsim.rules._common import tokenwise
from specsim.rules._common.fixed_pairs import alias_draw, draw_residual


def is_shared(x: int, size: int, shared: Any) -> bool:
    return x < float(shared) * size


def restricted(q: Row, shared: Any) -> list[Any]:
    """q', for a q with some mass on shared tokens."""
    return tokenwise.normalise([b * is_shared(y, len(q), shared) for y, b in enumerate(q)])


def acceptance(p: Row, q: Row, x: int, shared: Any) -> Any:
    return min(1, p[x] / restricted(q, shared)[x]) if is_shared(x, len(q), shared) else 0


def recovered(p: Row, q: Row, x: int, shared: Any) -> list[Any]:
    """The residual of p over q', or p in place of a token that the target lacks."""
    return tokenwise.positive_part(p, restricted(q, shared)) if is_shared(x, len(q), shared) else list(p)


@inner_kernel
def shared_mass(q, shared):
    """q(S)."""
    mass = 0.0
    for y in range(q.size):
        if y < shared * q.size:
            mass += q[y]
    return mass


@inner_kernel
def accept(p, q, x, u, values):
    return x < values[0] * q.size and u * q[x] < p[x] * shared_mass(q, values[0])


@inner_kernel
def recover(p, q, x, values, weights):
    copy_row(p, weights)
    if x < values[0] * q.size:
        mass = shared_mass(q, values[0])
        for y in range(weights.size):
            if y < values[0] * q.size:
                weights[y] = max(p[y] - q[y] / mass, 0.0)


def restricted_row(p: Floats, q: Floats, shared: float) -> Floats:
    """q', or p where no shared token can be drafted."""
    kept = np.where(np.arange(q.size) < shared * q.size, q, 0.0)
    return kept / kept.sum() if kept.any() else p


def shares(p: Floats, q: Floats, shared: float) -> tuple[Floats, Floats]:
    """Accept with min(1, p/q') in S; whether a rejected token is in S."""
    inside = (np.arange(q.size) < shared * q.size).astype(np.float64)
    return inside * capped_ratio(p, restricted_row(p, q, shared)), inside


@inner_kernel
def draw(pair, inside, x, tested, u):
    """From the residual of p over q', or from p in place of a token that the target lacks."""
    return draw_residual(pair, 1.0, 1.0, u) if inside[x] > 0.0 else alias_draw(pair.p_alias, u)


RULE = tokenwise.rule(
    "token_level_intersection",
    (acceptance, recovered),
    (accept, recover),
    tokenwise.fixed_pair_by_token(shares, draw, restricted_row),
)
