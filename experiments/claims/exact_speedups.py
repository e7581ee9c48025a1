"""An article, "Exact speedups with draft models". Its letters are swapped: there q is the target and p the draft."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from itertools import pairwise, product

import numpy as np

from experiments.claims.anatomy import Claim, Outcome, decide, only_if
from experiments.claims.laws import DRAFT, TARGET, P, Q, Row, distance, fractions, row, step
from experiments.claims.speed import best_speed, needed_alpha, speed
from specsim.models import Model, TableModel
from specsim.rules._common.tokenwise import positive_part
from specsim.theory import optimal_gamma
from specsim.theory._enumeration import Law, Tokens, target_law

__all__ = ["CLAIMS", "two_to_four"]

SOURCE = "“Exact speedups” article"
BIBLIOGRAPHY = "a bibliography to look the paper up in"


# --- exactness -------------------------------------------------------------------------------------------


def exact(gamma: int = 3) -> Outcome:
    found = step(TARGET, DRAFT, gamma=gamma)
    return decide(found.tv == 0, f"TV = {found.tv} after {gamma} drafted tokens of the small pair")


def clamped(epsilons: tuple[Fraction, ...] = (Fraction(1, 100), Fraction(1, 10), Fraction(1, 2))) -> Outcome:
    """The ratio's denominator at least eps; the least drafted probability of the pair is 1/60."""
    draft = TableModel(fractions(20, 39, 1))
    target = TableModel(fractions(20, 20, 20))

    def tv(eps: Fraction) -> Fraction:
        def accept(p: Row, q: Row, x: int) -> Fraction:
            return min(Fraction(1), p[x] / max(q[x], eps))

        return step(target, draft, accept=accept).tv

    found = [tv(eps) for eps in epsilons]
    shown = ", ".join(
        f"TV = {float(value):.4f} at eps = {float(eps):g}" for eps, value in zip(epsilons, found, strict=True)
    )
    return only_if(
        found[0] == 0,
        max(found) == 0,
        f"only if min(1, p/max(q, eps)) is the same, as for eps below the draft's least probability ({1 / 60:.4f} here): "
        f"{shown}",
    )


def goes_on_after_rejection(target: Model, draft: Model, gamma: int, context: Tokens) -> Law:
    """All positions tested, whatever was rejected before; every row is the one after the drafted tokens."""
    law: Law = defaultdict(Fraction)
    for path in product(range(target.vocab_size), repeat=gamma):
        probability = Fraction(1)
        emitted: dict[Tokens, Fraction] = {(): Fraction(1)}
        for i, x in enumerate(path):
            q = row(draft, (*context, *path[:i]))
            probability *= q[x]
            p = row(target, (*context, *path[:i]))
            nexts: dict[Tokens, Fraction] = defaultdict(Fraction)
            for prefix, mass in emitted.items():
                passed = min(Fraction(1), p[x] / q[x]) if q[x] else Fraction(0)
                nexts[(*prefix, x)] += mass * passed
                for token, weight in enumerate(positive_part(p, q)):
                    nexts[(*prefix, token)] += mass * (1 - passed) * weight
            emitted = nexts
        for prefix, mass in emitted.items():
            for token, weight in enumerate(row(target, (*context, *path))):
                law[(*prefix, token)] += probability * mass * weight
    return law


def stopping_is_crucial(gamma: int = 2) -> Outcome:
    found = [
        distance(goes_on_after_rejection(TARGET, DRAFT, gamma, (x,)), target_law(TARGET, gamma + 1, (x,)))
        for x in range(3)
    ]
    target, draft = TableModel(P), TableModel(Q)
    free = distance(goes_on_after_rejection(target, draft, gamma, ()), target_law(target, gamma + 1))
    return decide(
        max(found) > 0,
        f"a step of {gamma} that goes on testing after a rejection is TV = {float(max(found)):.3f} from the target's law; "
        f"only for rows that do not depend on the context TV = {free}",
    )


def pseudocode_is_exact(doubled: bool = True) -> Outcome:
    """The draft's row is asked for after x[:n] and the drafts so far, while n has counted the accepted ones already."""
    first = [fractions(1, 2, 3), fractions(2, 1, 1), fractions(1, 2, 2)]
    second = [fractions(3, 1, 2), fractions(1, 1, 2), fractions(2, 2, 1)]
    draft = TableModel([first, second, [first[2], second[0], first[1]]])

    def believed(context: Tokens, path: Tokens) -> Row:
        return row(draft, (*context, *path, *(path if doubled else ())))

    found = step(TARGET, draft, believed=believed)
    once = step(TARGET, draft)
    return decide(
        found.tv == 0,
        f"as written the accepted tokens stand twice in the draft's context, and a step of 2 is TV = {float(found.tv):.4f} "
        f"from the target's law for a draft that reads two tokens; with each of them once TV = {once.tv}",
    )


def closed_interval(numbers: int = 1000) -> Outcome:
    """r in [0, 1] with both ends, tested by r < 1, where p = q and nothing is left to sample."""
    closed = sum(not Fraction(k, numbers) < 1 for k in range(numbers + 1))
    opened = sum(not Fraction(k, numbers) < 1 for k in range(numbers))
    left = sum(max(a - a, Fraction(0)) for a in P)
    return only_if(
        opened == 0,
        closed == 0,
        f"only if r is never 1: with p = q the ratio is 1, and of {numbers + 1:,} numbers in [0, 1] {closed} rejects, with a "
        f"residual of mass {left} to divide by; of {numbers:,} in [0, 1) {opened} do",
    )


def clip_avoids_nan() -> Outcome:
    with np.errstate(invalid="ignore"):
        ratio = np.float64(0.0) / np.float64(0.0)
    clipped = np.clip(ratio, 0.0, 1.0)
    clamped_ratio = min(1.0, 0.0 / max(0.0, 1e-10))
    return decide(
        not np.isnan(clipped),
        f"0/0 clipped to [0, 1] is {clipped}; with the denominator at least 1e-10 it is {clamped_ratio}; a draft drawn from "
        "its row never has probability 0",
    )


# --- tokens and time -------------------------------------------------------------------------------------


def one_more_than_drafted(gamma: int = 3) -> Outcome:
    found = step(TARGET, DRAFT, gamma=gamma)
    longest = {max(len(emitted) for emitted in law) for law in found.laws.values()}
    whole = [
        sum((mass for emitted, mass in law.items() if len(emitted) == gamma + 1), Fraction(0))
        for law in found.laws.values()
    ]
    return decide(
        longest == {gamma + 1},
        f"{max(longest)} tokens from {gamma} drafted and one pass, with probability {float(min(whole)):.3f} to "
        f"{float(max(whole)):.3f} on the small pair",
    )


def overshoots(length: int = 20, k: int = 4) -> Outcome:
    """Every length that the loop can end with, if a step emits 1 to K + 1 tokens while n < T."""
    reached = {0}
    for n in range(length):
        if n in reached:
            reached |= {n + emitted for emitted in range(1, k + 2)}
    ends = [n for n in reached if n >= length]
    return decide(
        min(ends) >= length,
        f"for T = {length} and K = {k} the loop ends with {min(ends)} to {max(ends)} tokens",
    )


def branches(prefix: int = 100, k: int = 5) -> Outcome:
    """The contexts n, n + 1, …, n + K lie on one path."""
    children = {i: {i + 1} for i in range(prefix, prefix + k)}
    apart, together = sum(range(prefix, prefix + k + 1)), prefix + k
    branching = sum(len(nexts) > 1 for nexts in children.values())
    return decide(
        branching == k,
        f"the {k + 1} contexts lie on one path, with {branching} branchings: one pass over {together} tokens has all of their "
        f"rows; as a batch of contexts they are {apart} tokens (n = {prefix}, K = {k})",
    )


def larger_k_hurts(alpha: float = 0.7, c: float = 0.1) -> Outcome:
    best = int(optimal_gamma(alpha, c))
    speeds = {k: speed(alpha, k, c) for k in (best, 4 * best, 8 * best)}
    return decide(
        speeds[8 * best] < speeds[best],
        f"at α = {alpha}, c = {c} the speed is "
        + ", ".join(f"{value:.2f} at K = {k}" for k, value in speeds.items())
        + ", the first the best, with α and memory as they were",
    )


def closer_and_cheaper() -> Outcome:
    alphas, costs, alpha, cost = [a / 50 for a in range(5, 50)], [c / 50 for c in range(1, 40)], 0.8, 0.1
    by_alpha, by_cost = [best_speed(a, cost) for a in alphas], [best_speed(alpha, c) for c in costs]
    rising = all(x < y for x, y in pairwise(by_alpha))
    falling = all(x > y for x, y in pairwise(by_cost))
    return decide(
        rising and falling,
        f"with the best K the speed rises from {by_alpha[0]:.2f} to {by_alpha[-1]:.2f} for α from {alphas[0]} to {alphas[-1]} at "
        f"c = {cost}, and falls from {by_cost[0]:.2f} to {by_cost[-1]:.2f} for c from {costs[0]} to {costs[-1]} at α = {alpha}",
    )


def gets_the_bonus(low: float = 0.7, high: float = 0.95, k: int = 4) -> Outcome:
    half = 0.5 ** (1 / k)
    return only_if(
        high**k > 0.5,
        low**k > 0.5,
        f"only if α > {half:.3f} (K = {k}, “often” read as more than half of the steps): all pass with probability "
        f"{low**k:.3f} at α = {low} and {high**k:.3f} at α = {high}",
    )


def two_to_four(low: float = 2.0, high: float = 4.0, alphas: tuple[float, float] = (0.7, 0.95)) -> Outcome:
    """The best K at both ends of the acceptance rates, for several costs."""
    costs = (0.02, 0.05, 0.1, 0.2)
    speeds = {c: tuple(best_speed(alpha, c) for alpha in alphas) for c in costs}
    shown = ", ".join(f"{least:.2f} to {most:.2f} at c = {c}" for c, (least, most) in speeds.items())
    cost = costs[2]
    needed = [needed_alpha(wanted, cost) for wanted in (low, high)]
    inside = [low <= value <= high for pair in speeds.values() for value in pair]
    return only_if(
        any(inside),
        all(inside),
        f"only for α between {needed[0]:.3f} and {needed[1]:.3f} at c = {cost} (best K, verification as cheap as one token); for α "
        f"from {alphas[0]} to {alphas[1]} the speed is {shown}",
    )


CLAIMS: list[Claim] = [
    Claim(
        "exact.exact",
        SOURCE,
        "Overview, Verification",
        "r < a_t; else … (q - p)₊",
        "the same law as sampling from the big model",
        check=exact,
    ),
    Claim(
        "exact.clamp",
        SOURCE,
        "Minimal pseudocode",
        "max(ctx_prob_p[z], eps)",
        "the clamp leaves the law alone",
        check=clamped,
    ),
    Claim(
        "exact.pseudocode",
        SOURCE,
        "Minimal pseudocode",
        "p.prob(. | x[:n] + tilde[:t-1])",
        "the pseudocode is exact",
        check=pseudocode_is_exact,
    ),
    Claim(
        "exact.stopping",
        SOURCE,
        "Practical notes",
        "Stopping when you reject is crucial",
        "going on after a rejection changes the law",
        check=stopping_is_crucial,
    ),
    Claim(
        "exact.closed",
        SOURCE,
        "Verification",
        "r ~ Uniform[0,1]",
        "both ends may come",
        check=closed_interval,
    ),
    Claim(
        "exact.clip",
        SOURCE,
        "Practical notes",
        "Clip ratios to avoid NaNs",
        "clipping removes NaN",
        check=clip_avoids_nan,
    ),
    Claim(
        "exact.bonus",
        SOURCE,
        "Bonus token",
        "K+1 tokens while doing one batched pass",
        "what a step emits that accepts everything",
        check=one_more_than_drafted,
    ),
    Claim(
        "exact.length",
        SOURCE,
        "Notation, pseudocode",
        "T: minimum total length; while n < T",
        "no text is shorter than T",
        check=overshoots,
    ),
    Claim(
        "exact.branches",
        SOURCE,
        "Practical notes",
        "reuses the prefix KV, then branches K times",
        "what scoring the draft takes",
        check=branches,
    ),
    Claim(
        "exact.large_k",
        SOURCE,
        "Practical notes",
        "Too large K can hurt",
        "there is a best K",
        check=larger_k_hurts,
    ),
    Claim(
        "exact.quality",
        SOURCE,
        "Practical notes",
        "higher acceptance → bigger speedups; but p must be cheaper",
        "speed rises with α and falls with c",
        check=closer_and_cheaper,
    ),
    Claim(
        "exact.rates",
        SOURCE,
        "Why this works",
        "often 70–95% in practice",
        "acceptance rates of well-matched drafts",
        needs="pairs of language models and their text",
    ),
    Claim(
        "exact.often",
        SOURCE,
        "Why this works",
        "often accept most of the draft and get the “bonus”",
        "at 70–95 % the whole draft often passes",
        check=gets_the_bonus,
    ),
    Claim(
        "exact.speed",
        SOURCE,
        "Why this works",
        "2–4× wall-clock speedup",
        "what such acceptance rates gain",
        check=two_to_four,
    ),
    *(
        Claim(f"exact.reference_{number}", SOURCE, "References", quote, "a reference", needs=BIBLIOGRAPHY)
        for number, quote in enumerate(
            (
                "Leviathan, Y., Matias, Y., et al. (2023)",
                "Chen, X., et al. (2023)",
                "Cai, Z., et al. (2023). Medusa",
                "Fu, Y., et al. (2024). Self-Speculative Decoding",
            ),
            1,
        )
    ),
]
