"""What is done where the residual has next to no mass.

In exact arithmetic an empty residual follows no rejection; with rounding, thresholds and low precision it
does."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from specsim.core._parameters import Parameter
from specsim.core._types import Floats, Ints, Row
from specsim.mistakes import _reference as ref
from specsim.mistakes._laws import StepLaw, law, one_hot, residual
from specsim.mistakes._reference import excess, verifier_mistake

mistake = partial(verifier_mistake, "degenerate residual")


def threshold(default: float) -> tuple[Parameter]:
    return (
        Parameter("threshold", default, 0.0, 1.0, "mass from which on the residual is used", above_low=True),
    )


def law_or(otherwise: Callable[[Row], Row]) -> Callable[..., StepLaw]:
    """The law of a verifier that draws from otherwise(p) where the residual has too little mass."""

    def recovered(p: Row, q: Row, x: int, threshold: Any) -> Row:
        mass = sum(max(a - b, 0) for a, b in zip(p, q, strict=True))
        return otherwise(p) if mass <= threshold else residual(p, q)

    return law(recovered=recovered)


def or_else(otherwise: Callable[[Floats], Floats]) -> Callable[..., Floats]:
    """The residual; otherwise(p) where its mass is too small."""

    def recover(p: Floats, q: Floats, x: Ints, threshold: float) -> Floats:
        left = excess(p, q)
        return np.where(left.sum(axis=1, keepdims=True) <= threshold, otherwise(p), left)

    return recover


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
    mistake(
        "residual_floor",
        "A residual of little mass is replaced by p.",
        threads=("DeepSpec sample_residual",),
        recover=or_else(lambda p: p),
        law=law_or(lambda p: p),
        parameters=threshold(1e-8),
    ),
    mistake(
        "last_id_if_degenerate",
        "Where the residual has little mass, the last id of the vocabulary is emitted.",
        threads=("rtp-llm#1295", "sgl-project/sglang chain_speculative_sampling_triton"),
        recover=or_else(lambda p: np.eye(1, p.shape[1], p.shape[1] - 1)),
        law=law_or(lambda p: one_hot(len(p), len(p) - 1)),
        parameters=threshold(1e-6),
    ),
    mistake(
        "first_id_if_degenerate",
        "Where the residual has little mass, it underflows to zeros, whose argmax is token 0.",
        threads=("vllm-project/vllm sample_recovered_tokens",),
        recover=or_else(lambda p: np.eye(1, p.shape[1])),
        law=law_or(lambda p: one_hot(len(p), 0)),
        parameters=threshold(1e-6),
    ),
    mistake(
        "padding_wins",
        "Where the residual has little mass, all scores tie and a padding id beyond V is emitted.",
        threads=("vllm-project/vllm#44744",),
        verify=padding_wins,
        parameters=threshold(1e-3),
    ),
)
