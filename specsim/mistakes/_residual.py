"""After a rejection the token is drawn from something else than (p - q)₊, or where that has next to no mass.

In exact arithmetic no empty residual follows a rejection; with rounding, thresholds, low precision it may."""

from collections.abc import Callable
from functools import partial

import numpy as np

from specsim.core._types import Floats, Ints
from specsim.mistakes import _reference as ref
from specsim.mistakes._reference import at, excess, mask_drafted, mistake, of_last, target
from specsim.mistakes._rows import in_parts, misaligned
from specsim.rules._lossy.lenience import RULE as LENIENCE


def target_or_first(p: Floats, q: Floats, x: Ints) -> Floats:
    """p without the drafted tokens, whose argmax is 0 where it is zeros."""
    left = mask_drafted(p, q, x)
    return np.where(left.any(axis=1, keepdims=True), left, np.eye(1, p.shape[1]))


def with_the_rest(p: Floats, q: Floats, x: Ints) -> Floats:
    """The residual, and what its sum lacks of 1 at the last id."""
    left = excess(p, q)
    left[:, -1] += 1.0 - left.sum(axis=1)
    return left


def or_else(otherwise: Callable[[Floats], Floats], p: Floats, q: Floats, x: Ints, threshold: float) -> Floats:
    """The residual; otherwise(p) where its mass is too small."""
    left = excess(p, q)
    return np.where(left.sum(axis=1, keepdims=True) <= threshold, otherwise(p), left)


def or_gives_up(p: Floats, q: Floats, x: Ints, tries: float) -> Floats:
    """The residual by rejection from p, or p itself after some tries that fail."""
    left = excess(p, q)
    kept = left.sum(axis=1, keepdims=True)
    missed = (1.0 - kept) ** tries
    return np.divide(left * (1.0 - missed), kept, out=np.zeros_like(p), where=kept > 0.0) + missed * p


def without_all_drafted(x: Ints, p: Floats, q: Floats) -> tuple[Floats, Floats]:
    """p without all tokens that were drafted, where that leaves any, in place of the residuals."""
    drafted = (x[:, :, None] == np.arange(p.shape[2])).any(axis=1, keepdims=True)
    left = np.where(drafted, 0.0, p[:, :-1])
    left = np.where(left.any(axis=2, keepdims=True), left, p[:, :-1])
    return np.concatenate([left, p[:, -1:]], axis=1), np.zeros_like(q)


def target_if_any_empty(x: Ints, p: Floats, q: Floats) -> tuple[Floats, Floats]:
    """Where a residual of any row of the call has no mass all rows are recovered from p."""
    return p, q if (p[:, :-1] > q).any(axis=2).all() else np.zeros_like(q)


def padding_wins(
    draft_tokens: Ints, p: Floats, q: Floats, rng: np.random.Generator, threshold: float
) -> Ints:
    accepted, u = ref.accept_standard(draft_tokens, p, q, rng)
    last = ref.last_token(draft_tokens, p, q, accepted, u)
    rejected = np.flatnonzero(accepted < draft_tokens.shape[1])
    left = excess(p[rejected, accepted[rejected]], q[rejected, accepted[rejected]])
    last[rejected[left.sum(axis=1) <= threshold]] = p.shape[2]
    return ref.pack_output(draft_tokens, accepted, last)


MISTAKES = (
    mistake("resamples_target", recover=target),
    mistake("rejection_gives_up", recover=or_gives_up),
    mistake("absolute_residual", recover=lambda p, q, x: np.abs(p - q)),
    mistake("one_hot_residual", recover=mask_drafted),
    mistake("all_drafted_masked", rows=without_all_drafted),
    mistake(
        "lenience", passes=lambda u, x, p, q, lenience: u * lenience * at(q, x) < at(p, x), law=LENIENCE.law
    ),
    mistake("residual_epsilon", recover=lambda p, q, x, epsilon: np.maximum(p - q, 0.0) + epsilon),
    mistake("residual_not_normalised", recover=with_the_rest),
    of_last("parts_normalised_alone", in_parts),
    mistake("swapped_residual", recover=lambda p, q, x: np.maximum(q - p, 0.0)),
    mistake(
        "zeroed_in_place",
        uniforms=ref.tests_then_last,
        passes=lambda u, x, p, q: np.zeros(x.shape, dtype=bool),
        recover=target_or_first,
        law=ref.law_of_last_token(recover=target_or_first, chances=lambda tokens, p, q: [0] * len(tokens)),
    ),
    mistake("misaligned_residual", recover=lambda p, q, x, k: misaligned(p, q, k)),
    mistake("residual_floor", recover=partial(or_else, lambda p: p)),
    mistake(
        "last_id_if_degenerate", recover=partial(or_else, lambda p: np.eye(1, p.shape[1], p.shape[1] - 1))
    ),
    mistake("first_id_if_degenerate", recover=partial(or_else, lambda p: np.eye(1, p.shape[1]))),
    mistake("one_empty_residual", verify=partial(ref.verify, rows=target_if_any_empty)),
    mistake("padding_wins", verify=padding_wins),
)
