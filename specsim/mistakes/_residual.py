"""After a rejection the token is drawn from something else than (p - q)₊, or where that has next to no mass.

In exact arithmetic an empty residual follows no rejection; with rounding, thresholds and low precision it
does."""

from collections.abc import Callable
from functools import partial

import numpy as np

from specsim.core._parameters import Parameter
from specsim.core._types import Floats, Ints
from specsim.mistakes import _reference as ref
from specsim.mistakes._reference import above_zero, at, excess, mask_drafted, target, verifier_mistake
from specsim.mistakes._rows import in_parts, misaligned
from specsim.rules._lossy.lenience import RULE as LENIENCE

mistake = partial(verifier_mistake, "wrong residual")
degenerate = partial(verifier_mistake, "degenerate residual")
THRESHOLD = "mass from which on the residual is used"


def target_or_first(p: Floats, q: Floats, x: Ints) -> Floats:
    """p without the drafted tokens, whose argmax is 0 where it is zeros."""
    left = mask_drafted(p, q, x)
    return np.where(left.any(axis=1, keepdims=True), left, np.eye(1, p.shape[1]))


def with_the_rest(p: Floats, q: Floats, x: Ints) -> Floats:
    """The residual, and what its sum lacks of 1 at the last id."""
    left = excess(p, q)
    left[:, -1] += 1.0 - left.sum(axis=1)
    return left


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
    ),
    mistake(
        "absolute_residual",
        "The residual is |p - q|, which has mass where q exceeds p.",
        recover=lambda p, q, x: np.abs(p - q),
    ),
    mistake(
        "one_hot_residual",
        "Drafts are accepted with p/q, but the residual is p without the drafted token.",
        threads=("xLLM#2175",),
        recover=mask_drafted,
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
        parameters=above_zero("epsilon", 1e-9, "what is added"),
    ),
    mistake(
        "residual_not_normalised",
        "The residual is drawn from as if it summed to 1: what it lacks goes to the last id.",
        recover=with_the_rest,
    ),
    mistake(
        "parts_normalised_alone",
        "Each part of the vocabulary is normalised alone before the last token is drawn.",
        recover=lambda p, q, x, parts: in_parts(excess(p, q), parts),
        bonus=lambda p, q, parts: in_parts(p, parts),
        parameters=(Parameter("parts", 2, 1, np.inf, "of the ids; 1 is right", whole=True),),
    ),
    mistake(
        "swapped_residual",
        "The residual is (q - p)₊: target and draft are swapped.",
        recover=lambda p, q, x: np.maximum(q - p, 0.0),
    ),
    mistake(
        "zeroed_in_place",
        "The drafted tokens are set to 0 in the target's rows before the test reads these rows.",
        threads=("vllm-project/vllm-ascend#2881",),
        uniforms=ref.tests_then_last,
        passes=lambda u, x, p, q: np.zeros(x.shape, dtype=bool),
        recover=target_or_first,
        law=ref.law_of_last_token(recover=target_or_first, chances=lambda tokens, p, q: [0] * len(tokens)),
    ),
    mistake(
        "misaligned_residual",
        "p and q are cut to their own top k, then subtracted entry by entry although ids differ.",
        threads=("ggml-org/llama.cpp examples/speculative",),
        recover=lambda p, q, x, k: misaligned(p, q, k),
        parameters=(Parameter("k", 2, 1, np.inf, "tokens kept of each row", whole=True),),
    ),
    degenerate(
        "residual_floor",
        "A residual of little mass is replaced by p.",
        threads=("DeepSpec sample_residual",),
        recover=or_else(lambda p: p),
        parameters=above_zero("threshold", 1e-8, THRESHOLD),
    ),
    degenerate(
        "last_id_if_degenerate",
        "Where the residual has little mass, the last id of the vocabulary is emitted.",
        threads=("rtp-llm#1295", "sgl-project/sglang chain_speculative_sampling_triton"),
        recover=or_else(lambda p: np.eye(1, p.shape[1], p.shape[1] - 1)),
        parameters=above_zero("threshold", 1e-6, THRESHOLD),
    ),
    degenerate(
        "first_id_if_degenerate",
        "Where the residual has little mass, it underflows to zeros, whose argmax is token 0.",
        threads=("vllm-project/vllm sample_recovered_tokens",),
        recover=or_else(lambda p: np.eye(1, p.shape[1])),
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
