"""A wrong test of the drafted tokens, and lossy tests that are not declared to be lossy."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate, pairwise
from math import exp, factorial, inf, log
from operator import mul
from typing import Any

import numpy as np

from specsim.core._types import Floats, Ints
from specsim.mistakes import _laws as laws
from specsim.mistakes import _reference as ref
from specsim.mistakes._laws import Row, Rows, StepLaw, chain_law, follow_rows, law, of_chain, ratios
from specsim.mistakes._reference import at, mistake
from specsim.mistakes._rows import above, argmax, likeliest, ratio, sure_if_close
from specsim.rules._chain import block
from specsim.rules._chain.greedy_match import RULE as GREEDY_MATCH
from specsim.rules._chain.one_hot import recovered as without_drafted
from specsim.rules._controls import BLOCK_FIRST_FAILURE, BLOCK_TOKENWISE_RESIDUAL
from specsim.rules._lossy.ensemble import RULE as ENSEMBLE
from specsim.rules._lossy.scaled_lenience import RULE as SCALED_LENIENCE
from specsim.rules._lossy.typical import RULE as TYPICAL

#: b_0 … b_γ [B, γ+1] of drafted tokens, p and q.
Scales = Callable[[Ints, Floats, Floats], Floats]


def typical(u: Floats, x: Ints, p: Floats, q: Floats, epsilon: float, delta: float) -> Any:
    entropy = -(p * np.log(p + 1e-5)).sum(axis=2)
    return at(p, x) > np.minimum(epsilon, delta * np.exp(-entropy))


def relaxed(p: Floats, k: float, fraction: float) -> Floats:
    """The weights of those of the k likeliest tokens with at least `fraction` of the largest probability."""
    return above(likeliest(p, k), fraction)


def scales(x: Ints, p: Floats, q: Floats) -> Floats:
    """b_0 … b_γ of block verification: [B, γ+1]."""
    b = np.ones((len(p), x.shape[1] + 1))
    for i, (target, draft) in enumerate(zip(at(p, x).T, at(q, x).T, strict=True)):
        b[:, i + 1] = ratio(b[:, i] * target, draft)
    return b


def block_test(u: Floats, x: Ints, p: Floats, q: Floats, scales: Scales = scales) -> Any:
    """Test i passes with h_i of block verification, the last with b_γ."""
    b = scales(x, p, q)
    left = np.maximum(b[:, :-1, None] * p - q, 0.0).sum(axis=2)
    whole = left + 1.0 - b[:, :-1]
    h = np.divide(left, whole, out=np.ones_like(left), where=whole > 0.0)
    return u < np.column_stack([h[:, 1:], b[:, -1]])


def scaled_rows(x: Ints, p: Floats, q: Floats, scales: Scales = scales) -> tuple[Floats, Floats]:
    """b·p where a residual is drawn from, p for the bonus."""
    return np.concatenate([scales(x, p[:, :-1], q)[:, :-1, None] * p[:, :-1], p[:, -1:]], axis=1), q


def product_test(u: Floats, x: Ints, p: Floats, q: Floats) -> Any:
    return u.cumprod(axis=1) < ratio(at(p, x), at(q, x)).cumprod(axis=1)


def products(x: Ints, p: Floats, q: Floats) -> Floats:
    """Products [B, γ] of p/q of the drafted tokens up to each, none cut at 1."""
    target, draft = at(p, x), at(q, x)
    return np.divide(target, draft, out=np.ones_like(target), where=draft > 0.0).cumprod(axis=1)


def late_scales(x: Ints, p: Floats, q: Floats) -> Floats:
    """min(1, Π p/q) [B, γ+1], for b_0 … b_γ."""
    return np.minimum(np.column_stack([np.ones(len(p)), products(x, p, q)]), 1.0)


def capped(tokens: Sequence[int], p: Rows, q: Rows) -> list[Any]:
    """min(1, Π p/q) up to each drafted token."""
    ratios = (p[i][x] / q[i][x] for i, x in enumerate(tokens))
    return [min(1, product) for product in accumulate(ratios, mul)]


def credited(tokens: Sequence[int], p: Rows, q: Rows) -> list[Any]:
    return laws.under_one_uniform(capped(tokens, p, q), p)


def on_support(p: Floats, q: Floats) -> Floats:
    """q without the tokens that p lacks, normalised; q where nothing is left."""
    left = np.where(p > 0.0, q, 0.0)
    total = left.sum(axis=-1, keepdims=True)
    return np.divide(left, total, out=q.copy(), where=total > 0.0)


def draft_on_support(p: Row, q: Row) -> list[Any]:
    return laws.positive_part([b if a else 0 * b for a, b in zip(p, q, strict=True)], [0 * b for b in q], q)


def double_chance(draft_tokens: Ints, p: Floats, q: Floats, rng: np.random.Generator) -> Ints:
    def passes(u: Floats, x: Ints, p: Floats, q: Floats) -> Any:
        return ref.ratio_test(u, x, p, q) | (rng.random(u.shape) < at(p, x))

    return ref.verify(draft_tokens, p, q, rng, passes=passes)


#: Correct block verification.
block_verify = partial(
    ref.verify, uniforms=ref.tests_then_last, passes=block_test, count=ref.last_success, rows=scaled_rows
)


@of_chain
def product_law(tokens: Sequence[int], p: Rows, q: Rows) -> StepLaw:
    """-log of products of uniforms are arrivals of a Poisson process; test i passes if the i-th is late."""
    waits = (-log(chance) if chance > 0.0 else inf for chance in map(float, ratios(tokens, p, q)))
    times = list(accumulate(waits, initial=0.0))
    kind = type(p[0][0])
    stop = [kind(_stops_at(i, times)) for i in range(1, len(times))]
    return [1 - sum(stop), *stop], follow_rows(tokens, p, q)


@of_chain
def product_block_law(tokens: Sequence[int], p: Rows, q: Rows) -> StepLaw:
    """The same tests; the recovered token is that of block verification."""
    stop, _ = product_law(range(len(tokens)), tokens, p, q)
    return stop, block.next_tokens(block.scales_and_cuts(tokens, p, q)[0], p, q)


@of_chain
def late_scales_law(tokens: Sequence[int], p: Rows, q: Rows) -> StepLaw:
    b = [1 + 0 * p[0][0], *capped(tokens, p, q)]
    return block.law_of_scales(b, block.cuts(b, p, q), p, q)


def _stops_at(i: int, times: Sequence[float]) -> float:
    """P(fewer than i arrivals by times[i], and at least j by times[j] for all j > i)."""
    # the pmf of the number of arrivals; the last entry is for that many or more
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


MISTAKES = (
    mistake(
        "accepts_everything",
        passes=lambda u, x, p, q: np.ones(x.shape, dtype=bool),
        law=law(lambda p, q, x: 1),
    ),
    mistake(
        "close_rows_accepted",
        passes=lambda u, x, p, q, tolerance: u < at(sure_if_close(p, q, tolerance), x),
        law=law(
            lambda p, q, x, **how: sure_if_close(np.array([p], float), np.array([q], float), **how)[0, x]
        ),
    ),
    mistake(
        "inverted_ratio",
        passes=lambda u, x, p, q: u * at(p, x) < at(q, x),
        law=law(lambda p, q, x: laws.minimum_ratio(q, p, x)),
    ),
    mistake(
        "double_chance",
        verify=double_chance,
        law=law(lambda p, q, x: p[x] + (1 - p[x]) * laws.minimum_ratio(p, q, x)),
    ),
    mistake(
        "draft_over_largest",
        passes=lambda u, x, p, q: u * p.max(axis=2) < at(q, x),
        law=law(lambda p, q, x: min(1, q[x] / max(p))),
    ),
    mistake(
        "scaled_lenience",
        passes=lambda u, x, p, q, lenience: u * lenience * at(q, x) < at(p, x),
        recover=lambda p, q, x, lenience: ref.excess(p, lenience * q),
        law=SCALED_LENIENCE.law,
    ),
    mistake(
        "draft_on_support",
        passes=lambda u, x, p, q: ref.ratio_test(u, x, p, on_support(p, q)),
        recover=lambda p, q, x: ref.excess(p, on_support(p, q)),
        law=law(
            lambda p, q, x: laws.minimum_ratio(p, draft_on_support(p, q), x),
            lambda p, q, x: laws.residual(p, draft_on_support(p, q)),
        ),
    ),
    mistake(
        "ensemble",
        passes=lambda u, x, p, q, weight: u * at(q, x) < weight * at(p, x) + (1.0 - weight) * at(q, x),
        law=ENSEMBLE.law,
    ),
    replace(
        mistake("typical", passes=typical, recover=argmax, bonus=argmax, law=TYPICAL.law),
        parameters=TYPICAL.parameters,
    ),
    mistake(
        "two_thresholds",
        passes=lambda u, x, p, q, single, summed: (u * summed < at(p, x)) | (at(p, x) >= single),
        recover=ref.mask_drafted,
        law=law(
            lambda p, q, x, single, summed: 1 if p[x] >= single else min(1, p[x] / summed),
            lambda p, q, x, single, summed: without_drafted(p, q, x),
        ),
    ),
    mistake(
        "relaxed",
        passes=lambda u, x, p, q, k, fraction: (
            ref.ratio_test(u, x, p, q) | (at(relaxed(p, k, fraction), x) > 0.0)
        ),
        law=law(
            lambda p, q, x, k, fraction: (
                1 if laws.by_rows(relaxed)(p, k=k, fraction=fraction)[x] else laws.minimum_ratio(p, q, x)
            )
        ),
    ),
    mistake(
        "greedy_acceptance",
        passes=lambda u, x, p, q: x == p.argmax(axis=2),
        recover=argmax,
        bonus=argmax,
        law=GREEDY_MATCH.law,
    ),
    mistake(
        "first_unverified",
        passes=lambda u, x, p, q: ref.ratio_test(u, x, p, q) | (np.arange(x.shape[1]) == 0),
        law=chain_law(lambda tokens, p, q: [1, *ratios(tokens, p, q)[1:]]),
    ),
    mistake(
        "mask_too_short",
        passes=lambda u, x, p, q, bits: ref.ratio_test(u, x, p, q) & (np.arange(x.shape[1]) < bits),
        law=chain_law(
            lambda tokens, p, q, bits: [c if i < bits else 0 * c for i, c in enumerate(ratios(tokens, p, q))]
        ),
    ),
    mistake("product_of_ratios", passes=lambda u, x, p, q: u < products(x, p, q), law=chain_law(capped)),
    mistake(
        "one_uniform_product", passes=lambda u, x, p, q: u[:, :1] < products(x, p, q), law=chain_law(credited)
    ),
    mistake(
        "padding_ends_draft",
        passes=lambda u, x, p, q: ref.ratio_test(u, x, p, q) & (x > 0),
        recover=lambda p, q, x: np.where(x[:, None] > 0, ref.excess(p, q), p),
        law=law(
            lambda p, q, x: laws.minimum_ratio(p, q, x) if x else 0 * p[x],
            lambda p, q, x: laws.residual(p, q) if x else list(p),
        ),
    ),
    mistake(
        "block_tokenwise_residual", verify=block_verify, rows=ref.own_rows, law=BLOCK_TOKENWISE_RESIDUAL.law
    ),
    mistake(
        "block_cut_at_end",
        verify=block_verify,
        passes=partial(block_test, scales=late_scales),
        rows=partial(scaled_rows, scales=late_scales),
        law=late_scales_law,
    ),
    mistake("block_first_failure", verify=block_verify, count=ref.first_failure, law=BLOCK_FIRST_FAILURE.law),
    mistake(
        "block_product_of_uniforms",
        verify=block_verify,
        passes=product_test,
        rows=ref.own_rows,
        law=product_law,
    ),
    mistake("block_product_block_residual", verify=block_verify, passes=product_test, law=product_block_law),
)
