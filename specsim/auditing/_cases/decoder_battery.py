"""The battery of decoders: small models whose sequences can be counted, each to expose one defect.

Rows are 24-bit dyadic fractions, which sum to exactly 1. V^max_new_tokens is at most 512, so that the next
token is counted after every prefix; sequences are long enough for several steps of two or three drafted
tokens."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from specsim.core._types import Floats
from specsim.core.distributions import dyadic, normalise
from specsim.models import Mixture, Model, TableModel


@dataclass(frozen=True)
class DecoderCase:
    """A request to a decoder: continue `prompt` by `max_new_tokens` tokens, or up to and including `eos`."""

    name: str
    purpose: str
    target: Model
    draft: Model
    prompt: tuple[int, ...]
    max_new_tokens: int
    eos: int | None = None
    tree = None
    is_pair = False

    @property
    def vocab_size(self) -> int:
        return self.target.vocab_size

    @property
    def positions(self) -> int:
        """The most tokens of a sequence."""
        return self.max_new_tokens


def decoder_battery() -> list[DecoderCase]:
    """All cases of a decoder."""
    return [_case(*case) for case in _CASES]


def _case(name: str, purpose: str, rows: Callable[[], tuple[Floats, Floats]], request: Any) -> DecoderCase:
    p, q = rows()
    return DecoderCase(name, purpose, _table(p), _table(q), *request)


def _irregular(seed: int, vocab_size: int, order: int, zeros: float = 0.0) -> Floats:
    """Rows [V, …, V] that differ in every context; a share `zeros` of the entries is 0."""
    rng = np.random.default_rng(seed)
    weights = rng.gamma(1.5, size=(vocab_size,) * (order + 1)) + 0.1
    weights[rng.uniform(size=weights.shape) < zeros] = 0.0
    weights[..., -1] += weights.sum(axis=-1) == 0.0
    return normalise(weights)


def _peaked(vocab_size: int, order: int, *masses: float) -> Floats:
    """Rows [V, …, V], each a rotation of `masses` [V] that depends on all tokens of the context."""
    turns = np.indices((vocab_size,) * order).sum(axis=0)
    return np.array(masses)[(np.arange(vocab_size) - turns[..., None]) % vocab_size]


def _table(rows: Floats) -> TableModel:
    return TableModel(dyadic(rows))


def _end() -> tuple[Floats, Floats]:
    p, q = _irregular(3, 3, 2), _irregular(4, 3, 1)
    p[..., 0], q[..., 0] = 0.25 * p[..., 1:].sum(axis=-1), 0.6 * q[..., 1:].sum(axis=-1)
    return normalise(p), normalise(q)


def _mixed(p: Floats, other: Floats, weight: float) -> tuple[Floats, Floats]:
    """The draft is a mixture of `other` and of the target, which has `weight`."""
    target = _table(p)
    return p, Mixture(_table(other), target, weight).rows(target.contexts).reshape(p.shape)


def _far() -> tuple[Floats, Floats]:
    """The target favours two tokens that the draft seldom proposes, chosen by both tokens before."""
    p, q = np.full((4, 4, 4), 0.02), _irregular(10, 4, 1)
    for a, b in np.ndindex(4, 4):
        p[a, b, (a + b) % 2], p[a, b, (a + b + 1) % 2] = 0.72, 0.24
    q[:, :2] *= 0.05
    return p, normalise(q)


#: Name, purpose, the rows of target and draft, and the request: prompt, length and end-of-sequence token.
_CASES: tuple[tuple[Any, ...], ...] = (
    (
        "second order",
        "a target that reads two tokens: a state that lost one, or kept a rejected one",
        lambda: (_peaked(3, 2, 0.72, 0.2, 0.08), _irregular(2, 3, 1)),
        ((0, 1), 5),
    ),
    (
        "end in the draft",
        "the end of the text, token 0, is often drafted with tokens behind it",
        _end,
        ((2, 1), 5, 0),
    ),
    (
        "zeros",
        "tokens impossible under p, under q, under both",
        lambda: (_irregular(5, 4, 1, zeros=0.35), _irregular(6, 4, 1, zeros=0.35)),
        ((3,), 4),
    ),
    (
        "near",
        "a draft that is nearly the target: whole drafts accepted, the draft one token behind",
        lambda: _mixed(_peaked(2, 2, 0.8, 0.2), _irregular(8, 2, 2), 0.9),
        ((1, 0), 9),
    ),
    (
        "far",
        "a draft nearly disjoint from the target: a rejection and a rollback in almost every step",
        _far,
        ((0, 0), 4),
    ),
    (  # no ties, so that top-k is well defined; about half the steps have a bonus
        "peaked",
        "rows that temperature, top-k and top-p change a good deal",
        lambda: _mixed(_peaked(3, 1, 0.62, 0.27, 0.11), _peaked(3, 1, 0.27, 0.11, 0.62), 0.4),
        ((0,), 5),
    ),
)
