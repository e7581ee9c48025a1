"""A problem page: the accept test of speculative decoding as an exercise."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np

from experiments.claims.anatomy import Claim, Outcome, decide, only_if
from experiments.claims.laws import DRAFT, TARGET, P, Q, distance, min_law, overlap, pairs, step
from experiments.claims.speed import best_speed, speed
from specsim.models import TableModel
from specsim.simulation._verification import speculative_accept
from specsim.theory import optimal_gamma

__all__ = ["CLAIMS"]

SOURCE = "problem page"


def example(ratios: tuple[str, str] = ("0.6/0.3", "0.1/0.5"), output: tuple[int, ...] = (5,)) -> Outcome:
    """Tokens 5, 2, 7, all with r = .5; the third, of which nothing is said, would pass."""
    p, q = np.full((3, 8), 0.1), np.full((3, 8), 0.1)
    for i, (token, ratio) in enumerate(zip((5, 2), ratios, strict=True)):
        p[i, token], q[i, token] = (float(number) for number in ratio.split("/"))
    accepted = speculative_accept([5, 2, 7], p, q, np.full(3, 0.5))
    shown = ", ".join(f"{p[i, x] / q[i, x]:.3g}" for i, x in enumerate((5, 2)))
    return decide(
        tuple(accepted) == output,
        f"p/q = {shown} at the first two tokens; with r = 0.5 throughout the accepted prefix is {accepted}, though the "
        f"third token, p/q = {p[2, 7] / q[2, 7]:.3g}, would pass by itself",
    )


def first_rejected() -> Outcome:
    accepted = speculative_accept([0, 1], [[0.1, 0.9]] * 2, [[0.9, 0.1]] * 2, [0.5, 0.5])
    return decide(
        accepted == [],
        f"p/q = {0.1 / 0.9:.3f} at the first token and r = 0.5: the prefix has {len(accepted)} tokens",
    )


def dominates() -> Outcome:
    everywhere = [(p, q) for p, q in pairs() if all(a >= b for a, b in zip(p, q, strict=True))]
    passed = all(
        speculative_accept([x], [[float(a) for a in p]], [[float(b) for b in q]], [1.0]) == [x]
        for p, q in pairs()
        for x in range(3)
        if p[x] >= q[x] > 0
    )
    return decide(
        passed and all(p == q for p, q in everywhere),
        f"every drafted token with p ≥ q passes, at r = 1 too; p ≥ q at all tokens at once is {len(everywhere)} of "
        f"{sum(1 for _ in pairs())} pairs of small pmfs, those with p = q",
    )


def lets_impossible_through(bits: int = 24) -> Outcome:
    """An accept test at r ≤ p/q, with r one of 2^bits equally likely numbers from 0 on."""
    impossible, certain = [[0.0, 1.0]], [[1.0, 0.0]]
    at_zero = speculative_accept([0], impossible, certain, [0.0])
    strictly = sum(r < 0.0 for r in (0.0, 2.0**-bits))
    above = speculative_accept([0], impossible, certain, [2.0**-bits])
    return only_if(
        above == [],
        at_zero == [],
        f"only if r is never 0: with p = 0 and r = 0 the test returns {at_zero}, so a token that the target cannot "
        f"emit passes once in {2**bits:,} draws of a {bits}-bit uniform in [0, 1); with the strict r < p/q it passes "
        f"in {strictly} of them",
    )


def needs_residual() -> Outcome:
    whole = step(TARGET, DRAFT)
    alone = distance(min_law(P, Q), P)
    again = step(TARGET, DRAFT, recovered=lambda p, q: p)
    return only_if(
        whole.tv == 0,
        alone == 0,
        f"only if a token from (p - q)₊ follows the rejection: then TV = {whole.tv}; accepted tokens alone follow "
        f"min(p, q)/Σ min(p, q), in the example TV = {float(alone):.3f} from p; with p instead of (p - q)₊ TV = "
        f"{float(again.tv):.3f}",
    )


def closer_is_longer(count: int = 9) -> Outcome:
    """Drafts on the way from Q to P."""
    lengths = []
    for k in range(count):
        mix = [((count - 1 - k) * b + k * a) / Fraction(count - 1) for a, b in zip(P, Q, strict=True)]
        found = step(TableModel(P), TableModel(mix), gamma=3)
        lengths.append((float(overlap(P, mix)), float(found.tokens - 1)))
    (first, fewest), (last, most) = lengths[0], lengths[-1]
    rising = all(before[1] < after[1] for before, after in pairwise(lengths))
    return decide(
        rising,
        f"from Σ min(p, q) = {first:.2f} to {last:.2f} the accepted tokens of a step of 3 rise from {fewest:.3f} to "
        f"{most:.3f}, without a fall in {count} drafts",
    )


def governs_speed(alpha: float = 0.8, k: int = 5, costs: tuple[float, float] = (0.02, 0.6)) -> Outcome:
    cheap, dear = (speed(alpha, k, c) for c in costs)
    return only_if(
        cheap > 1,
        dear > 1,
        f"only with the cost of the draft beside it: α = {alpha} and {k} tokens a step are {cheap:.2f} times faster at "
        f"c = {costs[0]} and {dear:.2f} times at c = {costs[1]}",
    )


def just_faster(alpha: float = 0.1, c: float = 0.2) -> Outcome:
    slow = [speed(alpha, k, c) for k in range(1, 9)]
    return only_if(
        best_speed(0.8, c) > 1,
        max(slow) > 1,
        f"only if α > c: at α = 0.8, c = {c} {best_speed(0.8, c):.2f} times faster; at α = {alpha}, c = {c} between "
        f"{min(slow):.2f} and {max(slow):.2f} times for K from 1 to 8, and the best K is {optimal_gamma(alpha, c)}",
    )


CLAIMS: list[Claim] = [
    Claim(
        "problem.example",
        SOURCE,
        "Example 1",
        "min(1, 0.2) -> r[1]=0.5 > 0.2 reject; output [5]",
        "the worked example, and that verification halts at the first rejection",
        check=example,
    ),
    Claim(
        "problem.first",
        SOURCE,
        "hidden tests",
        "first token rejected gives empty prefix",
        "nothing is returned if the first token fails",
        check=first_rejected,
    ),
    Claim(
        "problem.cap",
        SOURCE,
        "Constraints",
        "p >= q always accepts for r <= 1",
        "a token that the target likes at least as much always passes",
        check=dominates,
    ),
    Claim(
        "problem.accept",
        SOURCE,
        "Problem statement",
        "r ≤ min(1, p/q), r in [0, 1)",
        "this accept test yields samples from the target",
        check=lets_impossible_through,
    ),
    Claim(
        "problem.identical",
        SOURCE,
        "Background, Notes",
        "identical in distribution to plain target sampling",
        "the accept test provably yields samples from the target",
        check=needs_residual,
    ),
    Claim(
        "problem.closer",
        SOURCE,
        "Notes",
        "the closer the draft is to the target, the more tokens stick",
        "accepted tokens rise as q moves to p",
        check=closer_is_longer,
    ),
    Claim(
        "problem.governs",
        SOURCE,
        "Notes",
        "expected number of accepted tokens … governs the wall-clock speed-up",
        "accepted tokens decide the speed",
        check=governs_speed,
    ),
    Claim(
        "problem.faster",
        SOURCE,
        "Background",
        "just faster",
        "the same law, sooner",
        check=just_faster,
    ),
]
