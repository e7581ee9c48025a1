"""Verified, recovered and bonus tokens come from rows that were processed differently."""

from functools import partial
from math import exp
from typing import Any

import numpy as np

from specsim.core._parameters import Parameter
from specsim.core._types import Floats, Row
from specsim.mistakes import _laws as laws
from specsim.mistakes._decoding import Decoder, decoder_mistake
from specsim.mistakes._laws import apply_temperature, law, residual
from specsim.mistakes._reference import above_zero, at, excess, verifier_mistake
from specsim.mistakes._rows import above, argmax, largest
from specsim.rules._chain.greedy_match import argmax as argmax_row
from specsim.rules._common.tokenwise import positive_part

FAMILY = "uneven processing"
mistake = partial(verifier_mistake, FAMILY)
decoder = partial(decoder_mistake, FAMILY)
FRACTION = (Parameter("fraction", 0.3, 0.0, 1.0, "of the largest probability; 0 is right"),)


def temperature(default: float) -> tuple[Parameter]:
    return above_zero("temperature", default, "T; 1 is right", 100.0)


def at_temperature(p: Floats, temperature: float) -> Floats:
    weights = (p / largest(p)) ** (1.0 / temperature)
    return weights / weights.sum(axis=1, keepdims=True)


def above_row(p: Row, fraction: Any) -> list[Any]:
    """min-p: the tokens with at least `fraction` of the largest probability."""
    return laws.normalise([a if a >= fraction * max(p) else 0 * a for a in p])


def softmax(p: Floats, **values: float) -> Floats:
    """softmax(p), which is nearly uniform."""
    weights = np.exp(p)
    return weights / weights.sum(axis=-1, keepdims=True)


def softmax_row(p: Row) -> list[Any]:
    return laws.as_given([exp(a) for a in p], p)


MISTAKES = (
    mistake(
        "bonus_argmax",
        "The bonus is the argmax of p.",
        bonus=argmax,
        law=law(bonus=lambda p, q: argmax_row(p)),
    ),
    mistake(
        "bonus_temperature",
        "The bonus is drawn at another temperature than the tokens before it.",
        threads=("SafeAILab/EAGLE bf10ac5",),
        bonus=lambda p, q, **heat: at_temperature(p, **heat),
        law=law(bonus=lambda p, q, **heat: apply_temperature(p, **heat)),
        parameters=temperature(1.5),
    ),
    mistake(
        "bonus_min_p",
        "min-p is applied only to the bonus.",
        threads=("vllm-project/vllm#42744", "vllm-project/vllm#42802"),
        bonus=lambda p, q, fraction: above(p, fraction),
        law=law(bonus=lambda p, q, fraction: above_row(p, fraction)),
        parameters=FRACTION,
    ),
    mistake(
        "bonus_from_residual",
        "The bonus is drawn from the residual of the last drafted position.",
        threads=("SafeAILab/EAGLE evaluate_posterior",),
        bonus=lambda p, q: np.where((p > q).any(axis=1, keepdims=True), excess(p, q), p),
        law=laws.chain_law(
            follow=lambda tokens, p, q: [*laws.follow_rows(tokens, p, q)[:-1], residual(p[-1], q[-1])]
        ),
    ),
    mistake(
        "residual_temperature",
        "The residual uses the target at another temperature than the test.",
        recover=lambda p, q, x, **heat: excess(at_temperature(p, **heat), q),
        law=law(recovered=lambda p, q, x, **heat: positive_part(apply_temperature(p, **heat), q, p)),
        parameters=temperature(1.5),
    ),
    mistake(
        "greedy_residual",
        "The recovered token is the argmax of the residual.",
        recover=lambda p, q, x: np.where((p > q).any(axis=1, keepdims=True), argmax(excess(p, q)), 0.0),
        law=law(recovered=lambda p, q, x: argmax_row(residual(p, q))),
    ),
    mistake(
        "probabilities_as_logits",
        "Drafts are verified against softmax(p): probabilities are read as logits.",
        threads=("vllm-project/vllm-ascend#6685",),
        passes=lambda u, x, p, q: u * at(q, x) < at(softmax(p), x),
        recover=lambda p, q, x: excess(softmax(p), q),
        law=law(
            lambda p, q, x: laws.minimum_ratio(softmax_row(p), q, x),
            lambda p, q, x: positive_part(softmax_row(p), q),
        ),
    ),
    decoder(
        "decoder_bonus_temperature",
        "The bonus is drawn at another temperature than the tokens before it.",
        Decoder(bonus=apply_temperature),
        threads=("SafeAILab/EAGLE bf10ac5",),
        parameters=temperature(1.5),
    ),
    decoder(
        "decoder_bonus_min_p",
        "min-p is applied only to the bonus.",
        Decoder(bonus=above_row),
        threads=("vllm-project/vllm#42744", "vllm-project/vllm#42802"),
        parameters=FRACTION,
    ),
    decoder(
        "verified_at_temperature",
        "Only the bonus uses the request's temperature; verification uses a fixed one.",
        Decoder(verified_p=apply_temperature),
        threads=("vllm-project/vllm#10198", "vllm-project/vllm#9834"),
        parameters=temperature(0.7),
    ),
)
