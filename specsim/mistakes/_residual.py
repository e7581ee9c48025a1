"""After a rejection the token is drawn from something else than (p - q)₊, or where that has next to no mass.

In exact arithmetic an empty residual follows no rejection; with rounding, thresholds and low precision it
does."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from specsim.core._parameters import Parameter
from specsim.core._types import Floats, Ints, Row
from specsim.mistakes import _laws as laws
from specsim.mistakes import _reference as ref
from specsim.mistakes._laws import Rows, StepLaw, law, normalise_or, residual
from specsim.mistakes._reference import above_zero, at, excess, mask_drafted, target, verifier_mistake
from specsim.mistakes._rows import misaligned
from specsim.models._drafts.sampling import rank_tokens
from specsim.rules._chain.one_hot import recovered as without_drafted
from specsim.rules._common.tokenwise import positive_part
from specsim.rules._lossy.lenience import RULE as LENIENCE

mistake = partial(verifier_mistake, "wrong residual")
degenerate = partial(verifier_mistake, "degenerate residual")
THRESHOLD = "mass from which on the residual is used"


def zeroed_in_place(draft_tokens: Ints, p: Floats, q: Floats, rng: np.random.Generator) -> Ints:
    p = p.copy()
    np.put_along_axis(p[:, :-1], draft_tokens[..., None], 0.0, axis=2)
    return ref.verify(draft_tokens, p, q, rng, uniforms=ref.tests_then_last, recover=target_or_first)


def target_or_first(p: Floats, q: Floats, x: Ints) -> Floats:
    return np.where(p.any(axis=1, keepdims=True), p, np.eye(1, p.shape[1]))  # the argmax of zeros is 0


def zeroed_follow(tokens: Sequence[int], p: Rows, q: Rows) -> list[Row]:
    rows = [[0 * a if y == x else a for y, a in enumerate(row)] for row, x in zip(p, tokens, strict=False)]
    return [*(normalise_or(row, laws.one_hot(len(row), 0)) for row in rows), p[-1]]


def misaligned_row(p: Row, q: Row, x: int, k: Any) -> list[Any]:
    likeliest, drafted = (sorted(rank_tokens(row)[: int(k)]) for row in (p, q))
    left = {y: p[y] - q[z] for y, z in zip(likeliest, drafted, strict=True)}
    weights = [max(left.get(y, 0), 0 * p[0]) for y in range(len(p))]
    return normalise_or(weights, p)


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
        "resamples_target",
        "A rejected token is replaced by a sample of p instead of the residual.",
        threads=(
            "ml-explore/mlx-lm#990",
            "ml-explore/mlx-lm#1085",
            "romsto/Speculative-Decoding skip_sample_adjustment",
        ),
        recover=target,
        law=law(recovered=lambda p, q, x: p),
    ),
    mistake(
        "absolute_residual",
        "The residual is |p - q|, which has mass where q exceeds p.",
        recover=lambda p, q, x: np.abs(p - q),
        law=law(recovered=lambda p, q, x: normalise_or([abs(a - b) for a, b in zip(p, q, strict=True)], p)),
    ),
    mistake(
        "one_hot_residual",
        "Drafts are accepted with p/q, but the residual is p without the drafted token.",
        threads=("xLLM#2175",),
        recover=mask_drafted,
        law=law(recovered=without_drafted),
    ),
    mistake(
        "lenience",
        "Drafts are accepted with p/(l·q), and the residual uses q without l: lossy, not declared.",
        threads=("lucidrains/speculative-decoding",),
        passes=lambda u, x, p, q, lenience: u * lenience * at(q, x) < at(p, x),
        law=LENIENCE.law,
        parameters=above_zero("lenience", 0.8, "l; 1 is right"),
    ),
    mistake(
        "residual_epsilon",
        "A small number is added to every entry of the residual.",
        threads=("VioletsOleander/naive-speculate",),
        recover=lambda p, q, x, epsilon: np.maximum(p - q, 0.0) + epsilon,
        law=law(
            recovered=lambda p, q, x, epsilon: laws.normalise(
                [max(a - b, 0) + epsilon for a, b in zip(p, q, strict=True)]
            )
        ),
        parameters=above_zero("epsilon", 1e-9, "what is added"),
    ),
    mistake(
        "swapped_residual",
        "The residual is (q - p)₊: target and draft are swapped.",
        recover=lambda p, q, x: np.maximum(q - p, 0.0),
        law=law(recovered=lambda p, q, x: positive_part(q, p, p)),
    ),
    mistake(
        "zeroed_in_place",
        "The drafted tokens are set to 0 in the target's rows before the test reads these rows.",
        threads=("vllm-project/vllm-ascend#2881",),
        verify=zeroed_in_place,
        law=laws.chain_law(lambda tokens, p, q: [0 * row[0] for row in p[:-1]], zeroed_follow),
    ),
    mistake(
        "misaligned_residual",
        "p and q are cut to their own top k, then subtracted entry by entry although ids differ.",
        threads=("ggml-org/llama.cpp examples/speculative",),
        recover=lambda p, q, x, k: misaligned(p, q, k),
        law=law(recovered=misaligned_row),
        parameters=(Parameter("k", 2, 1, np.inf, "tokens kept of each row", whole=True),),
    ),
    degenerate(
        "residual_floor",
        "A residual of little mass is replaced by p.",
        threads=("DeepSpec sample_residual",),
        recover=or_else(lambda p: p),
        law=law_or(lambda p: p),
        parameters=above_zero("threshold", 1e-8, THRESHOLD),
    ),
    degenerate(
        "last_id_if_degenerate",
        "Where the residual has little mass, the last id of the vocabulary is emitted.",
        threads=("rtp-llm#1295", "sgl-project/sglang chain_speculative_sampling_triton"),
        recover=or_else(lambda p: np.eye(1, p.shape[1], p.shape[1] - 1)),
        law=law_or(lambda p: laws.one_hot(len(p), len(p) - 1)),
        parameters=above_zero("threshold", 1e-6, THRESHOLD),
    ),
    degenerate(
        "first_id_if_degenerate",
        "Where the residual has little mass, it underflows to zeros, whose argmax is token 0.",
        threads=("vllm-project/vllm sample_recovered_tokens",),
        recover=or_else(lambda p: np.eye(1, p.shape[1])),
        law=law_or(lambda p: laws.one_hot(len(p), 0)),
        parameters=above_zero("threshold", 1e-6, THRESHOLD),
    ),
    degenerate(
        "padding_wins",
        "Where the residual has little mass, all scores tie and a padding id beyond V is emitted.",
        threads=("vllm-project/vllm#44744",),
        verify=padding_wins,
        parameters=above_zero("threshold", 1e-3, THRESHOLD),
    ),
)
