"""Verified, recovered and bonus tokens come from rows that were processed differently."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from specsim.core._types import Floats, Ints, Rows, StepLaw
from specsim.core.distributions import temperature as at_temperature
from specsim.core.distributions import top_p
from specsim.mistakes import _laws as laws
from specsim.mistakes import _reference as ref
from specsim.mistakes._base import Mistake
from specsim.mistakes._decoding import Decoder, decoder
from specsim.mistakes._laws import apply_temperature, law
from specsim.mistakes._reference import at, excess, mistake
from specsim.mistakes._rows import above, argmax, largest, likeliest, normalised
from specsim.rules._common.tokenwise import positive_part


def softmax(p: Floats, **values: float) -> Floats:
    """softmax(p), which is nearly uniform."""
    weights = np.exp(p)
    return weights / weights.sum(axis=-1, keepdims=True)


def truncated(name: str, cut: Callable[..., Floats]) -> Iterator[Mistake]:
    """A truncation of p that only the bonus has, or only the residual."""
    yield mistake(f"bonus_{name}", bonus=lambda p, q, **values: cut(p, **values))
    yield mistake(
        f"residual_{name}", recover=lambda p, q, x, **values: excess(normalised(cut(p, **values), p), q)
    )


def penalised(name: str, only: slice = slice(None), whole: bool = False, tests: bool = False) -> Mistake:
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
        rows=rows,
        passes=lambda u, x, p, q, penalty: ref.ratio_test(u, x, rows(x, p, q, penalty)[0] if tests else p, q),
        law=law,
    )


def greedy_if(p: Floats, threshold: float) -> Floats:
    """Rows p [..., V]; of those with a probability of at least `threshold` the argmax."""
    return np.where(largest(p) >= threshold, argmax(p), p)


def greedy_if_first(p: Floats, threshold: float) -> Floats:
    """Rows p [B, γ+1, V]; the argmax of all rows of a step whose first has a probability of `threshold`."""
    return np.where(largest(p[:, :1]) >= threshold, argmax(p), p)


@laws.of_chain
def greedy_if_first_law(tokens: Sequence[int], p: Rows, q: Rows, threshold: Any) -> StepLaw:
    if max(p[0]) >= threshold:
        p = [laws.by_rows(argmax)(row) for row in p]
    return laws.stop_law(laws.ratios(tokens, p, q)), laws.follow_rows(tokens, p, q)


PEAKED = laws.by_rows(greedy_if)

MISTAKES = (
    mistake("bonus_argmax", bonus=argmax),
    mistake("bonus_temperature", bonus=lambda p, q, temperature: at_temperature(p, temperature)),
    *truncated("min_p", above),
    *truncated("top_k", likeliest),
    *truncated("top_p", top_p),
    mistake(
        "bonus_from_residual",
        bonus=lambda p, q: np.where((p > q).any(axis=1, keepdims=True), excess(p, q), p),
    ),
    mistake(
        "residual_temperature", recover=lambda p, q, x, temperature: excess(at_temperature(p, temperature), q)
    ),
    mistake(
        "greedy_residual",
        recover=lambda p, q, x: np.where((p > q).any(axis=1, keepdims=True), argmax(excess(p, q)), 0.0),
    ),
    mistake(
        "probabilities_as_logits",
        passes=lambda u, x, p, q: u * at(q, x) < at(softmax(p), x),
        recover=lambda p, q, x: excess(softmax(p), q),
        law=law(
            lambda p, q, x: laws.minimum_ratio(laws.by_rows(softmax)(p), q, x),
            lambda p, q, x: positive_part(laws.by_rows(softmax)(p), q),
        ),
    ),
    mistake(
        "greedy_if_peaked",
        passes=lambda u, x, p, q, threshold: ref.ratio_test(u, x, greedy_if(p, threshold), q),
        recover=lambda p, q, x, threshold: excess(greedy_if(p, threshold), q),
        bonus=lambda p, q, threshold: greedy_if(p, threshold),
        law=law(
            lambda p, q, x, threshold: laws.minimum_ratio(PEAKED(p, threshold=threshold), q, x),
            lambda p, q, x, threshold: positive_part(PEAKED(p, threshold=threshold), q),
            lambda p, q, threshold: PEAKED(p, threshold=threshold),
        ),
    ),
    mistake(
        "greedy_if_first_peaked",
        verify=lambda x, p, q, rng, threshold: ref.verify(x, greedy_if_first(p, threshold), q, rng),
        law=greedy_if_first_law,
    ),
    penalised("penalty_twice", tests=True),
    penalised("last_penalised"),
    penalised("bonus_penalised", np.s_[-1:]),
    penalised("rejected_penalised", whole=True),
    decoder("decoder_bonus_temperature", Decoder(bonus=apply_temperature)),
    decoder("decoder_bonus_min_p", Decoder(bonus=laws.by_rows(above))),
    decoder("verified_at_temperature", Decoder(verified_p=apply_temperature)),
)
