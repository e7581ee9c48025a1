"""A programming exercise: write the accept test of speculative decoding."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from experiments.literature.claims.claim import Document, Finding, decide, only_if
from experiments.literature.claims.laws import DRAFT, TARGET, P, Q, Row, distance, min_law, step
from experiments.literature.claims.speed import speed
from specsim.rules._common.tokenwise import positive_part
from specsim.simulation._verification import speculative_accept

__all__ = ["DOCUMENT"]

DOCUMENT = Document(
    title="Speculative decoding verification",
    source="A programming exercise with hidden tests. The page gives no author, date or address.",
    listed=8,
    another_subject=0,
    repeated=4,
    unmeasured=0,
)


@DOCUMENT.claim(
    "problem.example",
    where="Example 1",
    quote="r[1]=0.5 > 0.2 reject … Output: [5]",
    correct="The accepted prefix ends before the first rejected token, even if a later token would pass.",
)
def example(ratios: tuple[str, str] = ("0.6/0.3", "0.1/0.5"), output: tuple[int, ...] = (5,)) -> Finding:
    """Tokens 5, 2, 7, all with r = 0.5; the example says nothing of the third, which would pass."""
    p, q = np.full((3, 8), 0.1), np.full((3, 8), 0.1)
    for i, (token, ratio) in enumerate(zip((5, 2), ratios, strict=True)):
        p[i, token], q[i, token] = (float(number) for number in ratio.split("/"))
    accepted = speculative_accept([5, 2, 7], p, q, np.full(3, 0.5))
    tested = ", ".join(f"{p[i, x] / q[i, x]:.3g}" for i, x in enumerate((5, 2, 7)))
    return decide(tuple(accepted) == output, f"p/q = {tested} and r = 0.5 give the prefix {accepted}.")


@DOCUMENT.claim(
    "problem.accept",
    where="Problem statement",
    quote="accept if r ≤ min(1, p/q) … uniform random numbers in [0, 1)",
    correct="Only if r is never 0. With r in [0, 1) the test must be r < p/q, or a token with p = 0 passes "
    "at r = 0.",
)
def impossible_token_passes(bits: int = 24) -> Finding:
    impossible, sure = [[0.0, 1.0]], [[1.0, 0.0]]
    at_zero = speculative_accept([0], impossible, sure, [0.0])
    above = speculative_accept([0], impossible, sure, [2.0**-bits])
    return only_if(
        above == [],
        at_zero == [],
        f"For a token with p = 0 the test returns {at_zero} at r = 0 and {above} at r = 2^-{bits}: a "
        f"generator of {bits} bits lets it pass once in {2**bits:,} draws.",
    )


@DOCUMENT.claim(
    "problem.identical",
    where="Background, Notes",
    quote="provably yields samples from the target distribution",
    correct="With a draw from (p - q)₊ after a rejection, as the notes of the page say. The accept test "
    "alone is not enough.",
)
def with_the_residual(recovered: Callable[[Row, Row], Row] = positive_part) -> Finding:
    whole = step(TARGET, DRAFT, recovered=recovered).tv
    again = step(TARGET, DRAFT, recovered=lambda p, q: p).tv
    return decide(
        whole == 0,
        f"TV = {whole}; with p in place of (p - q)₊ TV = {float(again):.3f}; accepted tokens alone have TV = "
        f"{float(distance(min_law(P, Q), P)):.3f}.",
    )


@DOCUMENT.claim(
    "problem.governs",
    where="Notes",
    quote="expected number of accepted tokens … governs the wall-clock speed-up",
    correct="Only together with the cost of drafting: the same acceptance gains with a cheap draft and loses "
    "with a dear one.",
)
def acceptance_decides_speed(
    alpha: float = 0.8, k: int = 5, costs: tuple[float, float] = (0.02, 0.6)
) -> Finding:
    cheap, dear = (speed(alpha, k, c) for c in costs)
    return only_if(
        cheap > 1,
        dear > 1,
        f"With α = {alpha} and K = {k} decoding is {cheap:.2f} times as fast at r = {costs[0]}, {dear:.2f} "
        f"times at r = {costs[1]}.",
    )
