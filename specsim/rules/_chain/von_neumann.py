"""Von Neumann's acceptance-rejection with an envelope: propose from q until one proposal passes p/(M·q).

The classical scheme, the baseline of speculative sampling. The drafted token is the first proposal; where it
fails, the verifier draws further ones from q itself. M = slack · max p/q, slack ≥ 1.

An accepted proposal follows p, and a proposal is accepted with probability 1/M; the expected number of
proposals is M. A kernel must have a bound: after `PROPOSALS` failures in all the token is drawn from p, which
changes nothing, as what remains to be drawn follows p. The same where q does not cover p and M is infinite.

An envelope must be one number. With one for each token, c(x) ≥ max(1, p(x)/q(x)), the output is ∝ p/c and no
longer p: see `pointwise_envelope`. A further proposal takes two uniforms, one to draw it and one to test it.

Lossless for a chain whose every token was sampled from the q handed over.

von Neumann, "Various techniques used in connection with random digits", 1951; for speculative sampling
Leviathan, Kalman & Matias, arXiv 2211.17192, Appendix A.2.

Cost: γ + 2·`PROPOSALS` - 1 uniforms a step; O(V) a position from rows, O(1) for a fixed pair."""

from typing import Any

import numpy as np

from specsim.core._kernels import inner_kernel, kernel
from specsim.core._types import Floats, Row
from specsim.core.distributions import alias_table, cumulative_draw
from specsim.models import Tree
from specsim.models._drafts.dynamic import Draft
from specsim.rules._chain import non_iterative
from specsim.rules._chain.non_iterative import envelope
from specsim.rules._common import tokenwise
from specsim.rules._common.base import FixedPair, end_step, named
from specsim.rules._common.fixed_pairs import alias_draw

#: Proposals at one position, the drafted token included.
PROPOSALS = 8


def uniforms(tree: Draft, vocab_size: int = 0) -> int:
    """One for each drafted token, two for each further proposal after a rejection, one to draw from p."""
    return tree.size + 2 * (PROPOSALS - 1) + 1


def acceptance(p: Row, q: Row, x: int, slack: Any) -> Any:
    """The probability that the proposal x passes."""
    return non_iterative.acceptance(p, q, x) / slack


def recovered(p: Row, q: Row, x: int, slack: Any) -> list[Any]:
    """The first of the further proposals that passes, else a draw from p."""
    passing = [b * acceptance(p, q, y, slack) if b else b for y, b in enumerate(q)]
    law, left = [0 * a for a in p], 1 + 0 * p[0]
    for _ in range(PROPOSALS - 1):
        law = [mass + left * chance for mass, chance in zip(law, passing, strict=True)]
        left *= 1 - sum(passing)
    return [mass + left * a for mass, a in zip(law, p, strict=True)]


@inner_kernel
def passes(p, q, x, u, height):
    """Whether the proposal x passes under the envelope `height`·q."""
    return p[x] > 0.0 and u * height * q[x] < p[x]


@kernel
def verify_rows(parents, draft_tokens, p, q, uniforms, values, tokens, accepted):
    """The row kernel: uniforms[i] tests position i, two for each further proposal, the last draws from p."""
    gamma = draft_tokens.shape[1]
    end = gamma + 2 * (PROPOSALS - 1)
    for b in range(draft_tokens.shape[0]):
        n, height = 0, 0.0
        while n < gamma:
            height, x = values[0] * envelope(p[b, n], q[b, n]), draft_tokens[b, n]
            if not passes(p[b, n], q[b, n], x, uniforms[n, b], height):
                break
            tokens[n, b] = x
            n += 1
        last = -1
        if n < gamma:
            for i in range(gamma, end, 2):
                x = cumulative_draw(q[b, n], uniforms[i, b])
                if passes(p[b, n], q[b, n], x, uniforms[i + 1, b], height):
                    last = x
                    break
        end_step(tokens, accepted, b, n, last if last >= 0 else cumulative_draw(p[b, n], uniforms[end, b]))


def shares(p: Floats, q: Floats, slack: float) -> tuple[Floats]:
    """The probability that each drafted token passes."""
    return (non_iterative.shares(p, q)[0] / slack,)


def tables(p: Floats, q: Floats, tree: Tree, slack: float) -> tuple[np.ndarray, ...]:
    """Alias tables of q and p, and the probability [V] that a proposal passes."""
    return alias_table(q), alias_table(p), *shares(p, q, slack)


@kernel
def verify_fixed_pair(proposal, target, chance, draft_uniforms, verify_uniforms, tokens, accepted):
    gamma = tokens.shape[0] - 1
    end = gamma + 2 * (PROPOSALS - 1)
    for s in range(tokens.shape[1]):
        n = 0
        while n < gamma:
            x = alias_draw(proposal, draft_uniforms[n, s])
            if not verify_uniforms[n, s] < chance[x]:
                break
            tokens[n, s] = x
            n += 1
        last = -1
        if n < gamma:
            for i in range(gamma, end, 2):
                x = alias_draw(proposal, verify_uniforms[i, s])
                if verify_uniforms[i + 1, s] < chance[x]:
                    last = x
                    break
        end_step(tokens, accepted, s, n, last if last >= 0 else alias_draw(target, verify_uniforms[end, s]))


RULE = named(
    "von_neumann",
    tokenwise.law("von_neumann", acceptance, recovered),
    verify_rows,
    FixedPair(tables, verify_fixed_pair, uniforms, tokenwise.acceptance_of(shares)),
    uniforms=uniforms,
)
