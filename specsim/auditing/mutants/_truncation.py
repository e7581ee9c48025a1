"""The draft is cut short by what was drawn, and the rest verified as if it had not been looked at."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from specsim.auditing.mutants._base import Mutant
from specsim.auditing.mutants._decoding import Decoder, decoder_mutant
from specsim.auditing.mutants._reference import (
    StepLaw,
    at,
    draw,
    first_failure,
    last_token,
    minimum_ratio,
    pack_output,
    ratio_test,
    residual,
    stop_law,
)
from specsim.core._types import Row, Tokens
from specsim.core.distributions import Floats, Ints
from specsim.rules._common.base import Parameter

mutant = partial(Mutant, family="draft cut by its own tokens")
decoder = partial(decoder_mutant, mutant)
THRESHOLD = (Parameter("threshold", 0.3, 0.0, 1.0, "of q, below which a drafted token is discarded"),)


def cut(draft_tokens: Ints, p: Floats, q: Floats, rng: np.random.Generator, sizes: Ints) -> Ints:
    """Standard verification of the first `sizes` [B] drafted tokens; if they all pass, a bonus from the row
    there.
    """
    gamma = draft_tokens.shape[1]
    u = rng.random((len(p), gamma + 1))
    passed = first_failure(ratio_test(u[:, :gamma], draft_tokens, p[:, :gamma], q))
    accepted = np.minimum(passed, sizes)
    last = last_token(draft_tokens, p, q, accepted, u[:, gamma])
    bonus = draw(p[np.arange(len(p)), accepted], u[:, gamma])
    return pack_output(draft_tokens, accepted, np.where(passed >= sizes, bonus, last))


def without_unlikely_last(
    draft_tokens: Ints, p: Floats, q: Floats, rng: np.random.Generator, threshold: float
) -> Ints:
    gamma = draft_tokens.shape[1]
    return cut(draft_tokens, p, q, rng, gamma - (at(q, draft_tokens)[:, -1] < threshold))


def until_unlikely(
    draft_tokens: Ints, p: Floats, q: Floats, rng: np.random.Generator, threshold: float
) -> Ints:
    return cut(draft_tokens, p, q, rng, first_failure(at(q, draft_tokens) >= threshold))


def cut_law(size: Any) -> Any:
    """The law of the same; size(tokens, q, threshold) drafted tokens are verified."""

    def of_a_step(
        parents: Sequence[int], tokens: Sequence[int], p: Sequence[Row], q: Sequence[Row], threshold: Any
    ) -> StepLaw:
        n = size(tokens, q, threshold)
        chances = [minimum_ratio(*rows) for rows in zip(p, q, tokens[:n], strict=False)]
        recovered = [residual(*rows) for rows in zip(p, q[:n], strict=False)]
        return [*stop_law(chances), *[0] * (len(tokens) - n)], [*recovered, *(list(row) for row in p[n:])]

    return of_a_step


def until(tokens: Sequence[int], q: Sequence[Row], threshold: Any) -> int:
    return next((i for i, x in enumerate(tokens) if q[i][x] < threshold), len(tokens))


def before_eos(drafted: Tokens, eos: int | None) -> int:
    return drafted.index(eos) if eos in drafted else len(drafted)


MUTANTS = (
    mutant(
        name="discards_unlikely_last",
        mechanism="The last drafted token is discarded if q is low there, and the bonus replaces it.",
        threads=("ggml-org/llama.cpp#22506", "ggml-org/llama.cpp#27694", "ik_llama#1820"),
        verify=without_unlikely_last,
        law=cut_law(lambda tokens, q, threshold: len(tokens) - (q[len(tokens) - 1][tokens[-1]] < threshold)),
        parameters=THRESHOLD,
    ),
    mutant(
        name="cuts_at_unlikely",
        mechanism="The draft is cut before the first token of low q.",
        threads=("vllm-project/vllm#43522", "vllm-project/vllm#35301"),
        verify=until_unlikely,
        law=cut_law(until),
        parameters=THRESHOLD,
    ),
    decoder(
        "cuts_at_eos",
        "The draft is cut before an end-of-sequence token, which is then emitted from p only.",
        Decoder(cut=before_eos),
    ),
)
