"""A wrong test of the drafted tokens, and lossy tests that are not declared to be lossy."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from math import exp, factorial, inf, log
from typing import Any

import numpy as np

from specsim.auditing.mutants._base import Mutant
from specsim.auditing.mutants._randomness import follow_rows, ratios
from specsim.auditing.mutants._reference import (
    StepLaw,
    at,
    chain_law,
    first_failure,
    last_token,
    law,
    minimum_ratio,
    pack_output,
    verify,
)
from specsim.auditing.mutants._residual import mask_drafted
from specsim.core._types import Row
from specsim.core.distributions import Floats, Ints
from specsim.rules._chain.greedy_match import RULE as GREEDY_MATCH
from specsim.rules._chain.one_hot import recovered as without_drafted
from specsim.rules._common.base import Parameter
from specsim.rules._controls import block_first_failure, block_tokenwise_residual
from specsim.rules._lossy.ensemble import RULE as ENSEMBLE
from specsim.rules._lossy.scaled_lenience import RULE as SCALED_LENIENCE
from specsim.rules._lossy.typical import RULE as TYPICAL

mutant = partial(Mutant, family="wrong acceptance rule")


def argmax(p: Floats, *given: Any, **values: float) -> Floats:
    """All mass on the most probable token of each row."""
    best = np.zeros_like(p)
    np.put_along_axis(best, p.argmax(axis=-1, keepdims=True), 1.0, axis=-1)
    return best


def typical(u: Floats, x: Ints, p: Floats, q: Floats, epsilon: float, delta: float) -> Any:
    entropy = -(p * np.log(p + 1e-5)).sum(axis=2)
    return at(p, x) > np.minimum(epsilon, delta * np.exp(-entropy))


def scales(x: Ints, p: Floats, q: Floats) -> Floats:
    """b_0 … b_γ of block verification: [B, γ+1]."""
    b = np.ones((len(p), x.shape[1] + 1))
    for i, (target, draft) in enumerate(zip(at(p, x).T, at(q, x).T, strict=True)):
        b[:, i + 1] = ratio(b[:, i] * target, draft)
    return b


def ratio(p: Floats, q: Floats) -> Floats:
    """min(1, p/q), which cannot overflow."""
    return np.divide(p, q, out=np.ones_like(p), where=p < q)


def block_chances(x: Ints, p: Floats, q: Floats) -> tuple[Floats, Floats]:
    """b and h: [B, γ+1] each."""
    b = scales(x, p[:, :-1], q)
    left = np.maximum(b[:, :-1, None] * p[:, :-1] - q, 0.0).sum(axis=2)
    whole = left + 1.0 - b[:, :-1]
    h = np.divide(left, whole, out=np.ones_like(left), where=whole > 0.0)
    return b, np.column_stack([h, b[:, -1]])


def last_success(passed: Any) -> Ints:
    """The number of the last test [B, γ] that passes, from 1; 0 if none does."""
    return (passed * np.arange(1, passed.shape[1] + 1)).max(axis=1)


def scaled_rows(p: Floats, b: Floats) -> Floats:
    """b·p where a residual is drawn from, p for the bonus."""
    return np.concatenate([b[:, :-1, None] * p[:, :-1], p[:, -1:]], axis=1)


def tokenwise_residual(draft_tokens: Ints, p: Floats, q: Floats, rng: np.random.Generator) -> Ints:
    _, h = block_chances(draft_tokens, p, q)
    accepted = last_success(rng.random(draft_tokens.shape) < h[:, 1:])
    return pack_output(draft_tokens, accepted, last_token(draft_tokens, p, q, accepted, rng.random(len(p))))


def stops_at_failure(draft_tokens: Ints, p: Floats, q: Floats, rng: np.random.Generator) -> Ints:
    b, h = block_chances(draft_tokens, p, q)
    accepted = first_failure(rng.random(draft_tokens.shape) < h[:, 1:])
    rows = scaled_rows(p, b)
    return pack_output(
        draft_tokens, accepted, last_token(draft_tokens, rows, q, accepted, rng.random(len(p)))
    )


def product_of_uniforms(draft_tokens: Ints, p: Floats, q: Floats, rng: np.random.Generator) -> Ints:
    passing = np.cumprod(ratio(at(p[:, :-1], draft_tokens), at(q, draft_tokens)), axis=1)
    accepted = last_success(np.cumprod(rng.random(draft_tokens.shape), axis=1) < passing)
    return pack_output(draft_tokens, accepted, last_token(draft_tokens, p, q, accepted, rng.random(len(p))))


def product_law(parents: Sequence[int], tokens: Sequence[int], p: Sequence[Row], q: Sequence[Row]) -> StepLaw:
    """-log of the products of uniforms are the arrivals of a Poisson process; test i passes if the i-th comes
    late.
    """
    passed = [float(chance) for chance in ratios(tokens, p, q)]
    times = [0.0]
    for chance in passed:
        times.append(times[-1] - log(chance) if chance > 0.0 else inf)
    kind = type(p[0][0])
    stop = [kind(_stops_at(i, times)) for i in range(1, len(times))]
    return [1 - sum(stop), *stop], follow_rows(tokens, p, q)


def _stops_at(i: int, times: Sequence[float]) -> float:
    """P(fewer than i arrivals by times[i], and at least j by times[j] for all j > i)."""
    # the law of the number of arrivals; the last entry stands for that many or more
    counts = [1.0, *[0.0] * (len(times) - 1)]
    for j, (before, now) in enumerate(pairwise([0.0, *times[i:]]), start=i):
        counts = _arrivals(counts, now - before if now < inf else inf if before < inf else 0.0)
        counts = [share * (n < i if j == i else n >= j) for n, share in enumerate(counts)]
    return sum(counts)


def _arrivals(counts: Sequence[float], time: float) -> list[float]:
    most = len(counts) - 1
    more = [exp(-time) * time**k / factorial(k) if time < inf else 0.0 for k in range(most + 1)]
    after = [sum(counts[m] * more[n - m] for m in range(n + 1)) for n in range(most)]
    return [*after, sum(counts) - sum(after)]


MUTANTS = (
    mutant(
        name="accepts_everything",
        mechanism="Every drafted token is accepted.",
        threads=("huggingface/transformers#28508",),
        verify=partial(verify, passes=lambda u, x, p, q: np.ones(x.shape, dtype=bool)),
        law=law(lambda p, q, x: 1),
    ),
    mutant(
        name="inverted_ratio",
        mechanism="A draft is accepted if u·p < q: target and draft are swapped.",
        verify=partial(verify, passes=lambda u, x, p, q: u * at(p, x) < at(q, x)),
        law=law(lambda p, q, x: minimum_ratio(q, p, x)),
    ),
    mutant(
        name="double_chance",
        mechanism="A draft is accepted if it equals a sample of p, or if it passes the ratio test.",
        threads=("rtp-llm#521", "rtp-llm#1295"),
        verify=lambda draft_tokens, p, q, rng: verify(
            draft_tokens,
            p,
            q,
            rng,
            passes=lambda u, x, p, q: (u * at(q, x) < at(p, x)) | (rng.random(u.shape) < at(p, x)),
        ),
        law=law(lambda p, q, x: p[x] + (1 - p[x]) * minimum_ratio(p, q, x)),
    ),
    mutant(
        name="draft_over_largest",
        mechanism="A draft is accepted with min(1, q(x)/max p).",
        threads=("1bit-MONSTER#637",),
        verify=partial(verify, passes=lambda u, x, p, q: u * p.max(axis=2) < at(q, x)),
        law=law(lambda p, q, x: min(1, q[x] / max(p))),
    ),
    mutant(
        name="scaled_lenience",
        mechanism="Drafts are accepted with p/(l·q), and the residual uses l·q: lossy, not declared.",
        verify=partial(
            verify,
            passes=lambda u, x, p, q, lenience: u * lenience * at(q, x) < at(p, x),
            recover=lambda p, q, x, lenience: np.maximum(p - lenience * q, 0.0),
        ),
        law=SCALED_LENIENCE.law,
        parameters=(Parameter("lenience", 0.8, 0.0, 1.0, "l; 1 is right", above_low=True),),
    ),
    mutant(
        name="ensemble",
        mechanism="The draft is verified against w·p + (1 - w)·q instead of p: lossy, not declared.",
        threads=("huggingface/transformers assistant_ensemble_weight",),
        verify=partial(
            verify,
            passes=lambda u, x, p, q, weight: u * at(q, x) < weight * at(p, x) + (1.0 - weight) * at(q, x),
            recover=lambda p, q, x, weight: np.maximum(p - q, 0.0),
        ),
        law=ENSEMBLE.law,
        parameters=(Parameter("weight", 0.9, 0.0, 1.0, "w; 1 is right", above_low=True),),
    ),
    mutant(
        name="typical",
        mechanism="Typical acceptance, a threshold from the target's entropy: lossy, not declared.",
        threads=(
            "vllm-project/vllm#5015",
            "vllm-project/vllm#5131",
            "vllm-project/vllm-ascend#9772",
            "FasterDecoding/Medusa evaluate_posterior",
        ),
        verify=partial(verify, passes=typical, recover=argmax, bonus=argmax),
        law=TYPICAL.law,
        parameters=TYPICAL.parameters,
    ),
    mutant(
        name="two_thresholds",
        mechanism="Drafts are accepted with p/t, and always if p ≥ s: lossy, not declared.",
        threads=("sgl-project/sglang tree_speculative_sampling_target_only",),
        verify=partial(
            verify,
            passes=lambda u, x, p, q, single, summed: (u * summed < at(p, x)) | (at(p, x) >= single),
            recover=lambda p, q, x, single, summed: mask_drafted(p, q, x),
        ),
        law=law(
            lambda p, q, x, single, summed: 1 if p[x] >= single else min(1, p[x] / summed),
            lambda p, q, x, single, summed: without_drafted(p, q, x),
        ),
        parameters=(
            Parameter("single", 0.5, 0.0, 1.0, "s, threshold_single; 1 is right", above_low=True),
            Parameter("summed", 0.9, 0.0, 1.0, "t, threshold_acc; 1 is right", above_low=True),
        ),
    ),
    mutant(
        name="greedy_acceptance",
        mechanism="A draft is accepted if it is the argmax of p, else the argmax is emitted (greedy).",
        verify=partial(verify, passes=lambda u, x, p, q: x == p.argmax(axis=2), recover=argmax, bonus=argmax),
        law=GREEDY_MATCH.law,
    ),
    mutant(
        name="first_unverified",
        mechanism="The first drafted token is emitted without a test.",
        threads=("lattice#243", "lattice#258"),
        verify=partial(
            verify, passes=lambda u, x, p, q: (u * at(q, x) < at(p, x)) | (np.arange(x.shape[1]) == 0)
        ),
        law=chain_law(lambda tokens, p, q: [1, *ratios(tokens, p, q)[1:]], follow_rows),
    ),
    mutant(
        name="block_tokenwise_residual",
        mechanism="Block verification accepts, but the residual is that of the standard rule.",
        threads=("vllm-project/vllm-ascend#7807", "vllm-project/vllm-ascend#7808"),
        verify=tokenwise_residual,
        law=block_tokenwise_residual.RULE.law,
    ),
    mutant(
        name="block_first_failure",
        mechanism="Block verification stops at the first failed test instead of the last passed one.",
        threads=("vllm-project/vllm-ascend#11985",),
        verify=stops_at_failure,
        law=block_first_failure.RULE.law,
    ),
    mutant(
        name="block_product_of_uniforms",
        mechanism="The block ends at the last position where Π min(1, p/q) exceeds the product of uniforms.",
        threads=("vllm-project/vllm-ascend#7807", "vllm-project/vllm-ascend#7808"),
        verify=product_of_uniforms,
        law=product_law,
    ),
)
