"""The draft is cut short by what was drawn, and the rest verified as if it had not been looked at."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from specsim.core._parameters import Parameter
from specsim.core._types import Floats, Ints
from specsim.mistakes import _reference as ref
from specsim.mistakes._decoding import Decoder, decoder_mistake
from specsim.mistakes._laws import Rows, StepLaw, minimum_ratio, of_chain, residual, stop_law
from specsim.mistakes._reference import verifier_mistake

FAMILY = "draft cut by its own tokens"
mistake = partial(verifier_mistake, FAMILY)
decoder = partial(decoder_mistake, FAMILY)
THRESHOLD = (Parameter("threshold", 0.3, 0.0, 1.0, "of q, below which a drafted token is discarded"),)


def cut(
    sizes: Callable[..., Ints], x: Ints, p: Floats, q: Floats, rng: np.random.Generator, threshold: float
) -> Ints:
    """Standard verification of the first sizes(x, q, threshold) tokens, then a bonus from the row there."""
    verified = sizes(x, q, threshold)
    passed, u = ref.accept_standard(x, p, q, rng)
    accepted = np.minimum(passed, verified)
    last, bonus = ref.last_token(x, p, q, accepted, u), ref.draw(p[np.arange(len(p)), accepted], u)
    return ref.pack_output(x, accepted, np.where(passed >= verified, bonus, last))


def cut_law(size: Callable[..., int]) -> Callable[..., StepLaw]:
    """The law of the same; size(tokens, q, threshold) drafted tokens are verified."""

    @of_chain
    def law(tokens: Sequence[int], p: Rows, q: Rows, threshold: Any) -> StepLaw:
        n = size(tokens, q, threshold)
        chances = [minimum_ratio(*rows) for rows in zip(p, q, tokens[:n], strict=False)]
        recovered = [residual(*rows) for rows in zip(p, q[:n], strict=False)]
        return [*stop_law(chances), *[0] * (len(tokens) - n)], [*recovered, *(list(row) for row in p[n:])]

    return law


def until(tokens: Sequence[int], q: Rows, threshold: Any) -> int:
    return next((i for i, x in enumerate(tokens) if q[i][x] < threshold), len(tokens))


MISTAKES = (
    mistake(
        "discards_unlikely_last",
        "The last drafted token is discarded if q is low there, and the bonus replaces it.",
        threads=("ggml-org/llama.cpp#22506", "ggml-org/llama.cpp#27694", "ik_llama#1820"),
        verify=partial(cut, lambda x, q, threshold: x.shape[1] - (ref.at(q, x)[:, -1] < threshold)),
        law=cut_law(lambda tokens, q, threshold: len(tokens) - (q[len(tokens) - 1][tokens[-1]] < threshold)),
        parameters=THRESHOLD,
    ),
    mistake(
        "cuts_at_unlikely",
        "The draft is cut before the first token of low q.",
        threads=("vllm-project/vllm#43522", "vllm-project/vllm#35301"),
        verify=partial(cut, lambda x, q, threshold: ref.first_failure(ref.at(q, x) >= threshold)),
        law=cut_law(until),
        parameters=THRESHOLD,
    ),
    decoder(
        "cuts_at_eos",
        "The draft is cut before an end-of-sequence token, which is then emitted from p only.",
        Decoder(cut=lambda drafted, eos: drafted.index(eos) if eos in drafted else len(drafted)),
    ),
)
