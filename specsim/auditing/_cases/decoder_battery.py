"""The battery of decoders: small models whose sequences can be counted, each to expose one defect.

Rows are 24-bit dyadic fractions, which sum to exactly 1. V^max_new_tokens is at most 512, so that the next
token is counted after every prefix; sequences are long enough for several steps of two or three drafted
tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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
    def positions(self) -> int:
        """The most tokens of a sequence."""
        return self.max_new_tokens


def decoder_battery() -> list[DecoderCase]:
    """All cases of a decoder."""
    return [make() for make in _CASES]


def _irregular(seed: int, vocab_size: int, order: int, zeros: float = 0.0) -> NDArray[np.float64]:
    """Rows [V, …, V] that differ in every context; a share `zeros` of the entries is 0."""
    rng = np.random.default_rng(seed)
    weights = rng.gamma(1.5, size=(vocab_size,) * (order + 1)) + 0.1
    weights[rng.uniform(size=weights.shape) < zeros] = 0.0
    weights[..., -1] += weights.sum(axis=-1) == 0.0
    return normalise(weights)


def _peaked(vocab_size: int, order: int, *masses: float) -> NDArray[np.float64]:
    """Rows [V, …, V], each a rotation of `masses` [V] that depends on all tokens of the context."""
    turns = np.indices((vocab_size,) * order).sum(axis=0)
    return np.array(masses)[(np.arange(vocab_size) - turns[..., None]) % vocab_size]


def _table(rows: NDArray[np.float64]) -> TableModel:
    return TableModel(dyadic(rows))


def _second_order() -> DecoderCase:
    return DecoderCase(
        "second order",
        "a target that reads two tokens: a state that lost one, or kept a rejected one",
        _table(_peaked(3, 2, 0.72, 0.2, 0.08)),
        _table(_irregular(2, 3, 1)),
        (0, 1),
        5,
    )


def _end() -> DecoderCase:
    p, q = _irregular(3, 3, 2), _irregular(4, 3, 1)
    p[..., 0], q[..., 0] = 0.25 * p[..., 1:].sum(axis=-1), 0.6 * q[..., 1:].sum(axis=-1)
    return DecoderCase(
        "end in the draft",
        "the end of the text, token 0, is often drafted with tokens behind it",
        _table(normalise(p)),
        _table(normalise(q)),
        (2, 1),
        5,
        eos=0,
    )


def _zeros() -> DecoderCase:
    return DecoderCase(
        "zeros",
        "tokens impossible under p, under q, under both",
        _table(_irregular(5, 4, 1, zeros=0.35)),
        _table(_irregular(6, 4, 1, zeros=0.35)),
        (3,),
        4,
    )


def _near() -> DecoderCase:
    target = _table(_peaked(2, 2, 0.8, 0.2))
    rows = Mixture(_table(_irregular(8, 2, 2)), target, 0.9).rows(target.contexts)
    return DecoderCase(
        "near",
        "a draft that is nearly the target: whole drafts accepted, the draft one token behind",
        target,
        _table(rows.reshape(2, 2, 2)),
        (1, 0),
        9,
    )


def _far() -> DecoderCase:
    """The target favours two tokens that the draft seldom proposes; which one depends on both tokens before."""
    p, q = np.full((4, 4, 4), 0.02), _irregular(10, 4, 1)
    for a, b in np.ndindex(4, 4):
        p[a, b, (a + b) % 2], p[a, b, (a + b + 1) % 2] = 0.72, 0.24
    q[:, :2] *= 0.05
    return DecoderCase(
        "far",
        "a draft nearly disjoint from the target: a rejection and a rollback in almost every step",
        _table(p),
        _table(normalise(q)),
        (0, 0),
        4,
    )


def _processing() -> DecoderCase:
    """No ties, so that top-k is well defined; about half the steps have a bonus."""
    target = _table(_peaked(3, 1, 0.62, 0.27, 0.11))
    rows = Mixture(_table(_peaked(3, 1, 0.27, 0.11, 0.62)), target, 0.4).rows(target.contexts)
    return DecoderCase(
        "peaked", "rows that temperature, top-k and top-p change a good deal", target, _table(rows), (0,), 5
    )


_CASES: tuple[Callable[[], DecoderCase], ...] = (_second_order, _end, _zeros, _near, _far, _processing)
