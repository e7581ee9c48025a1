"""Verified, recovered and bonus tokens come from rows that were processed differently."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from specsim.core._parameters import Parameter
from specsim.core._types import Floats, Ints, Rows
from specsim.core.distributions import temperature as at_temperature
from specsim.core.distributions import top_p
from specsim.mistakes import _laws as laws
from specsim.mistakes import _reference as ref
from specsim.mistakes._base import Mistake
from specsim.mistakes._decoding import Decoder, decoder_mistake
from specsim.mistakes._laws import apply_temperature, law
from specsim.mistakes._reference import above_zero, at, excess, verifier_mistake
from specsim.mistakes._rows import above, argmax, likeliest, normalised
from specsim.rules._common.tokenwise import positive_part

FAMILY = "uneven processing"
mistake = partial(verifier_mistake, FAMILY)
decoder = partial(decoder_mistake, FAMILY)
FRACTION = (Parameter("fraction", 0.3, 0.0, 1.0, "of the largest probability; 0 is right"),)


def temperature(default: float) -> tuple[Parameter]:
    return above_zero("temperature", default, "T; 1 is right", 100.0)


def softmax(p: Floats, **values: float) -> Floats:
    """softmax(p), which is nearly uniform."""
    weights = np.exp(p)
    return weights / weights.sum(axis=-1, keepdims=True)


def truncated(
    word: str, name: str, cut: Callable[..., Floats], parameters: tuple[Parameter, ...], *threads: str
) -> Iterator[Mistake]:
    """A truncation of p that only the bonus has, or only the residual."""
    yield mistake(
        f"bonus_{name}",
        f"{word} is applied only to the bonus.",
        threads=threads,
        bonus=lambda p, q, **values: cut(p, **values),
        parameters=parameters,
    )
    yield mistake(
        f"residual_{name}",
        f"{word} is applied to the target only where the residual is taken.",
        recover=lambda p, q, x, **values: excess(normalised(cut(p, **values), p), q),
        parameters=parameters,
    )


def penalised(
    name: str, says: str, only: slice = slice(None), whole: bool = False, tests: bool = False
) -> Mistake:
    """The last token is drawn from rows of p, `only` some, in which the drafted tokens before them, or all of
    the `whole` draft, have a penalty; with `tests` drafts are tested with these rows too."""

    def rows(x: Ints, p: Floats, q: Floats, penalty: float) -> tuple[Floats, Floats]:
        before = np.arange(p.shape[1])[:, None, None] > np.arange(x.shape[1])[:, None]
        drafted = (x[:, None, :, None] == np.arange(p.shape[2])) & (before | whole)
        found = p.copy()
        found[:, only] = np.where(drafted.any(axis=2), p / penalty, p)[:, only]
        return found / found.sum(axis=2, keepdims=True), q

    def chances(tokens: Sequence[int], p: Rows, q: Rows, penalty: float) -> list[Any]:
        found, _ = rows(np.array([tokens]), np.array([p], dtype=float), np.array([q]), penalty)
        return laws.ratios(tokens, found[0] if tests else p, q)

    law = ref.law_of_last_token(rows, chances=chances)
    law.in_order = not whole  # type: ignore[attr-defined]
    return mistake(
        name,
        says,
        rows=rows,
        passes=lambda u, x, p, q, penalty: ref.ratio_test(u, x, rows(x, p, q, penalty)[0] if tests else p, q),
        law=law,
        parameters=(Parameter("penalty", 1.5, 1.0, np.inf, "by which p is divided; 1 is right"),),
    )


MISTAKES = (
    mistake("bonus_argmax", "The bonus is the argmax of p.", bonus=argmax),
    mistake(
        "bonus_temperature",
        "The bonus is drawn at another temperature than the tokens before it.",
        threads=("SafeAILab/EAGLE bf10ac5",),
        bonus=lambda p, q, temperature: at_temperature(p, temperature),
        parameters=temperature(1.5),
    ),
    *truncated("min-p", "min_p", above, FRACTION, "vllm-project/vllm#42744", "vllm-project/vllm#42802"),
    *truncated("top-k", "top_k", likeliest, (Parameter("k", 2, 2, np.inf, "tokens kept", whole=True),)),
    *truncated("top-p", "top_p", top_p, (Parameter("mass", 0.8, 0.5, 1.0, "of the nucleus; 1 is right"),)),
    mistake(
        "bonus_from_residual",
        "The bonus is drawn from the residual of the last drafted position.",
        threads=("SafeAILab/EAGLE evaluate_posterior",),
        bonus=lambda p, q: np.where((p > q).any(axis=1, keepdims=True), excess(p, q), p),
    ),
    mistake(
        "residual_temperature",
        "The residual uses the target at another temperature than the test.",
        recover=lambda p, q, x, temperature: excess(at_temperature(p, temperature), q),
        parameters=temperature(1.5),
    ),
    mistake(
        "greedy_residual",
        "The recovered token is the argmax of the residual.",
        recover=lambda p, q, x: np.where((p > q).any(axis=1, keepdims=True), argmax(excess(p, q)), 0.0),
    ),
    mistake(
        "probabilities_as_logits",
        "Drafts are verified against softmax(p): probabilities are read as logits.",
        threads=("vllm-project/vllm-ascend#6685",),
        passes=lambda u, x, p, q: u * at(q, x) < at(softmax(p), x),
        recover=lambda p, q, x: excess(softmax(p), q),
        law=law(
            lambda p, q, x: laws.minimum_ratio(laws.by_rows(softmax)(p), q, x),
            lambda p, q, x: positive_part(laws.by_rows(softmax)(p), q),
        ),
    ),
    penalised(
        "penalty_twice",
        "A penalty that p has already is applied again to the tokens drafted earlier in the step.",
        tests=True,
    ),
    penalised(
        "last_penalised", "Only the last token of a step is drawn with a penalty for its accepted tokens."
    ),
    penalised(
        "bonus_penalised", "Only the bonus is drawn with a penalty for the accepted tokens.", np.s_[-1:]
    ),
    penalised(
        "rejected_penalised",
        "The last token is drawn with a penalty for all drafted tokens, the rejected ones included.",
        whole=True,
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
        Decoder(bonus=laws.by_rows(above)),
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
