"""One step of verification on given arrays: the accept test alone, and the whole step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from specsim import rules
from specsim.distributions import Floats, Ints, check_probabilities, check_rows, check_tokens
from specsim.sources import Rows, rule_verifier
from specsim.streams import Purpose, RandomSource, key_of, root_of, uniform

__all__ = ["Verification", "speculative_accept", "verify"]


def speculative_accept(draft_tokens: Sequence[int], p: ArrayLike, q: ArrayLike, r: ArrayLike) -> list[int]:
    """The longest accepted prefix of `draft_tokens`: token i passes if r[i] ≤ min(1, p[i, x]/q[i, x]).

    `draft_tokens` holds L token ids, `p` and `q` are the target's and the draft's probabilities [L, V], `r`
    uniforms [L] in [0, 1). Stops at the first rejection. Only the drafted tokens' entries, as far as they are
    tested, decide, so rows need not sum to 1. (Leviathan et al., arXiv 2211.17192, Algorithm 1.)

    q(x) = 0 at a tested token is an error: a token that the draft cannot draw was not drafted from q.
    p(x) = 0 with r exactly 0 is *accepted*, because 0 ≤ 0: this test lets an impossible token through once in
    2^53 draws (2^24 in float32). `verify` tests u·q < p, strictly, and cannot.

    Raises ValueError or TypeError for wrong shapes, tokens outside the vocabulary, entries or uniforms that
    are not finite or out of range.

    >>> p, q = np.full((3, 8), 0.1), np.full((3, 8), 0.1)
    >>> p[0, 5], q[0, 5] = 0.6, 0.3
    >>> p[1, 2], q[1, 2] = 0.1, 0.5
    >>> speculative_accept([5, 2, 7], p, q, np.array([0.5, 0.5, 0.5]))
    [5]
    >>> speculative_accept([1], [[1.0, 0.0]], [[0.5, 0.5]], [0.0])  # impossible under p, and yet
    [1]
    """
    p_rows, q_rows = check_probabilities(p, "p"), check_probabilities(q, "q")
    if p_rows.ndim != 2 or q_rows.shape != p_rows.shape:
        raise ValueError(f"p {p_rows.shape} and q {q_rows.shape} must share one shape [L, V]")
    tokens = check_tokens(draft_tokens, p_rows.shape[1])
    uniform_numbers = np.asarray(r, dtype=np.float64)
    if tokens.shape != (len(p_rows),) or uniform_numbers.shape != tokens.shape:
        raise ValueError(
            f"draft_tokens {tokens.shape} and r {uniform_numbers.shape} must hold one entry for each of the "
            f"{len(p_rows)} rows of p"
        )
    outside = ~((uniform_numbers >= 0.0) & (uniform_numbers <= 1.0))
    if outside.any():
        i = int(outside.argmax())
        raise ValueError(f"r, position {i}: {uniform_numbers[i]} is not a uniform in [0, 1]")
    accepted: list[int] = []
    for i, x in enumerate(tokens.tolist()):
        p_x, q_x = float(p_rows[i, x]), float(q_rows[i, x])
        if q_x == 0.0:
            raise _undraftable(i, x)
        if not uniform_numbers[i] <= min(1.0, p_x / q_x):
            break
        accepted.append(x)
    return accepted


@dataclass(frozen=True)
class Verification:
    """What a step emitted. For one step: `tokens` a list, `num_accepted` an int.

    For a batch of B: `tokens` int64 [B, γ+1] padded with -1, `num_accepted` int64 [B]. `root` is the seed that
    gives the same again, as `rng=root`.
    """

    tokens: list[int] | Ints
    num_accepted: int | Ints
    rule: str
    root: int


def verify(
    draft_tokens: ArrayLike, p: ArrayLike, q: ArrayLike, rule: str = "standard", rng: RandomSource = None
) -> Verification:
    """Verify `draft_tokens`: the accepted prefix, and one token more.

    One step: `draft_tokens` [γ], `p` [γ+1, V], `q` [γ, V]; or a batch, each with a leading axis B. On a
    rejection the last token is drawn from the rule's residual, and when all are accepted it is the bonus, drawn
    from row γ of p. `rng`: int, Generator, SeedSequence or None.

    With the standard rule: a drafted token with q(x) = 0 is an error, since q did not draw it. A token with
    p(x) = 0 is never emitted: the test is u·q < p with u in [0, 1). An all-zero residual cannot follow a
    rejection but by rounding (p and q equal up to it); the token then comes from p.

    Raises ValueError or TypeError for an unknown rule, γ = 0, an empty batch, wrong shapes, tokens out of range,
    and rows that are no pmfs (see `specsim.distributions.check_rows`).

    >>> p = [[0.1, 0.9], [0.5, 0.5]]
    >>> verify([1], p, [[0.5, 0.5]], rng=0).num_accepted
    1
    """
    chosen = rules.get(rule)
    p_rows, q_rows = check_rows(p, "p"), check_rows(q, "q")
    tokens = check_tokens(draft_tokens, p_rows.shape[-1])
    _check_shapes(tokens, p_rows, q_rows)
    drafted_q = np.take_along_axis(q_rows, tokens[..., None], axis=-1)[..., 0]
    if (drafted_q == 0.0).any():
        place = tuple(int(i) for i in np.argwhere(drafted_q == 0.0)[0])
        raise _undraftable(place[0] if len(place) == 1 else place, int(tokens[place]))
    root = root_of(rng)
    if tokens.ndim == 1:
        u = [uniform(key_of(root), Purpose.VERIFY, 0, i) for i in range(chosen.uniforms(len(tokens)))]
        walk = chosen.walk(tokens.tolist(), p_rows.tolist(), q_rows.tolist(), u)
        return Verification(walk.tokens, walk.num_accepted, rule, root)
    emitted, accepted = rule_verifier(chosen)(Rows(tokens, p_rows, q_rows), key_of(root), 0)
    return Verification(emitted.T.astype(np.int64), accepted, rule, root)


def _check_shapes(tokens: Ints, p: Floats, q: Floats) -> None:
    if tokens.ndim not in (1, 2):
        raise ValueError(f"draft_tokens: shape {tokens.shape} is neither [γ] nor [B, γ]")
    if tokens.shape[-1] == 0:
        raise ValueError("draft_tokens: no token was drafted (γ = 0), so there is nothing to verify")
    if tokens.size == 0:
        raise ValueError(f"draft_tokens: shape {tokens.shape} is an empty batch")
    *batch, gamma = tokens.shape
    vocab_size = p.shape[-1]
    for name, rows, count in (("p", p, gamma + 1), ("q", q, gamma)):
        if rows.shape != (*batch, count, vocab_size):
            raise ValueError(
                f"{name}: shape {rows.shape}, expected {(*batch, count, vocab_size)} for draft_tokens of shape "
                f"{tokens.shape}"
                + (" (p has one row more than there are drafted tokens)" if name == "p" else "")
            )


def _undraftable(place: object, token: int) -> ValueError:
    return ValueError(
        f"draft_tokens, position {place}: token {token} has q = 0, so it was not drawn from q; hand over the row "
        "that the draft sampled from (after temperature and filters)"
    )
