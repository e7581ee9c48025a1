"""Sampler match: sample the target's own token at every position, and accept drafts as long as they agree.

At each position sample y from p and emit it; stop unless y is the drafted token. After the last drafted token
emit one more sample. Every token emitted is a sample of p, whatever was drafted, so the rule is lossless for
every draft. It accepts x with probability p(x), as one-hot verification does, without a residual. It is
sometimes reported as a bias of engines; it costs acceptance (Σ p·q instead of Σ min(p, q) for sampled
drafts), not exactness.

Used by Hugging Face's prompt lookup, MLX-LM's `speculative_generate_step` and llama.cpp's server. Why a token
drawn from p needs no correction: Leviathan, Kalman & Matias, arXiv 2211.17192, Appendix A.1, at a one-hot q.

Cost: γ + 1 uniforms a step; O(V) a position from rows, O(1) for a fixed pair."""

import numpy as np

from specsim.core._kernels import kernel
from specsim.core._types import Floats
from specsim.core.distributions import alias_draws, alias_table, cumulative_draw
from specsim.models import Tree
from specsim.rules._chain import one_hot
from specsim.rules._common import tokenwise
from specsim.rules._common.base import FixedPair, end_step, named


@kernel
def verify_rows(parents, draft_tokens, p, q, uniforms, values, tokens, accepted):
    """The row kernel: uniforms[i] draws the target's token at position i."""
    gamma = draft_tokens.shape[1]
    for b in range(draft_tokens.shape[0]):
        n = 0
        while True:
            y = cumulative_draw(p[b, n], uniforms[n, b])
            if n == gamma or y != draft_tokens[b, n]:
                break
            tokens[n, b] = y
            n += 1
        end_step(tokens, accepted, b, n, y)


def tables(p: Floats, q: Floats, tree: Tree) -> tuple[np.ndarray, np.ndarray]:
    """Alias tables of the draft and of the target."""
    return alias_table(tokenwise.draft_pmf(q, tree)), alias_table(p)


@kernel
def verify_fixed_pair(draft, target, draft_uniforms, verify_uniforms, tokens, accepted):
    gamma, steps = tokens.shape[0] - 1, tokens.shape[1]
    drawn, wanted, alive = np.empty(steps, np.int32), np.empty(steps, np.int32), np.ones(steps, np.int64)
    accepted[:] = 0
    for i in range(gamma + 1):
        alias_draws(target, verify_uniforms[i], wanted)
        for s in range(steps):
            tokens[i, s] = (wanted[s] + 1) * alive[s] - 1
        if i < gamma:
            alias_draws(draft, draft_uniforms[i], drawn)
            for s in range(steps):
                alive[s] &= np.int64(wanted[s] == drawn[s])
                accepted[s] += alive[s]


RULE = named(
    "sampler_match",
    tokenwise.law("sampler_match", one_hot.acceptance, one_hot.recovered),
    verify_rows,
    FixedPair(tables, verify_fixed_pair, acceptance=tokenwise.acceptance_of(one_hot.shares)),
    survival=tokenwise.survival(lambda p, q: p),
)
