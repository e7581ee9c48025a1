"""An article with pseudocode. Its letters are swapped: there q is the target and p the draft."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from itertools import product

import numpy as np

from experiments.literature.claims.claim import Document, Finding, decide, only_if
from experiments.literature.claims.laws import (
    DRAFT,
    TARGET,
    P,
    Q,
    Row,
    distance,
    fractions,
    min_law,
    overlap,
    row,
    step,
)
from experiments.literature.claims.speed import best_speed, needed_alpha
from specsim.models import Model, TableModel
from specsim.rules._common.tokenwise import positive_part
from specsim.theory._enumeration import Law, Tokens, target_law

__all__ = ["DOCUMENT"]

DOCUMENT = Document(
    title="Speculative Decoding: Exact Speedups with Draft Models",
    source="An article by Ran Ding, copyright 2025. It gives no address.",
    listed=19,
    another_subject=3,
    repeated=5,
    unmeasured=0,
)


@DOCUMENT.claim(
    "exact.exact",
    where="Overview, Verification",
    quote="you still get exactly the same distribution",
    correct="The accept test with the residual (q - p)₊ and a bonus token is lossless.",
)
def exact(gamma: int = 3, lenience: int = 1) -> Finding:
    found = step(
        TARGET, DRAFT, gamma=gamma, accept=lambda p, q, x: min(Fraction(1), lenience * p[x] / q[x])
    ).tv
    return decide(found == 0, f"TV = {found} after {gamma} drafted tokens of the small pair.")


@DOCUMENT.claim(
    "exact.clamp",
    where="Minimal pseudocode",
    quote="a = min(1., ctx_prob_q[z] / max(ctx_prob_p[z], eps))",
    correct="Only if eps changes no acceptance probability, as for eps below every probability that the "
    "draft draws.",
)
def clamped(epsilons: tuple[Fraction, ...] = (Fraction(1, 100), Fraction(1, 10), Fraction(1, 2))) -> Finding:
    """The least drafted probability of the pair is 1/60."""
    draft, target = TableModel(fractions(20, 39, 1)), TableModel(fractions(20, 20, 20))

    def tv(eps: Fraction) -> Fraction:
        def accept(p: Row, q: Row, x: int) -> Fraction:
            return min(Fraction(1), p[x] / max(q[x], eps))

        return step(target, draft, accept=accept).tv

    found = {eps: tv(eps) for eps in epsilons}
    shown = ", ".join(f"{float(value):.3f} at eps = {float(eps):g}" for eps, value in found.items())
    return only_if(
        found[epsilons[0]] == 0,
        max(found.values()) == 0,
        f"TV = {shown}, for a draft of (20, 39, 1)/60.",
    )


@DOCUMENT.claim(
    "exact.pseudocode",
    where="Minimal pseudocode",
    quote="ctx_prob_p = p.prob(. | x[:n] + tilde[:t-1])",
    correct="n has counted the accepted tokens already, so they appear twice in the draft's context; the row "
    "must be kept from drafting.",
)
def pseudocode_is_exact(doubled: bool = True) -> Finding:
    first = [fractions(1, 2, 3), fractions(2, 1, 1), fractions(1, 2, 2)]
    second = [fractions(3, 1, 2), fractions(1, 1, 2), fractions(2, 2, 1)]
    draft = TableModel([first, second, [first[2], second[0], first[1]]])

    def believed(context: Tokens, path: Tokens) -> Row:
        return row(draft, (*context, *path, *(path if doubled else ())))

    found, once = step(TARGET, draft, believed=believed).tv, step(TARGET, draft).tv
    return decide(
        found == 0,
        f"TV = {float(found):.4f} for a step of 2 as written, with a draft that reads two tokens; {once} "
        "with the row that was drawn from.",
    )


def goes_on_after_rejection(target: Model, draft: Model, gamma: int, context: Tokens) -> Law:
    """All positions tested, whatever was rejected before; every row is the one after the drafted tokens."""
    law: Law = defaultdict(Fraction)
    for path in product(range(target.vocab_size), repeat=gamma):
        probability = Fraction(1)
        emitted: dict[Tokens, Fraction] = {(): Fraction(1)}
        for i, x in enumerate(path):
            p, q = row(target, (*context, *path[:i])), row(draft, (*context, *path[:i]))
            probability *= q[x]
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


@DOCUMENT.claim(
    "exact.stopping",
    where="Practical notes",
    quote="Stopping when you reject is crucial",
    correct="Testing the tokens after a rejected one changes the law, unless no row depends on the context.",
)
def stopping_is_crucial(target: Model = TARGET, draft: Model = DRAFT, gamma: int = 2) -> Finding:
    contexts = list(product(range(target.vocab_size), repeat=max(target.order, draft.order)))
    found = max(
        distance(
            goes_on_after_rejection(target, draft, gamma, context), target_law(target, gamma + 1, context)
        )
        for context in contexts
    )
    return decide(found > 0, f"TV = {float(found):.3f} for a step of {gamma} that goes on after a rejection.")


@DOCUMENT.claim(
    "exact.closed",
    where="Verification",
    quote="Draw r ~ Uniform[0,1]. If r < a_t: accept",
    correct="Only if r is never 1. At r = 1 a token with p = q is rejected, and the residual is 0 "
    "everywhere.",
)
def closed_interval(numbers: int = 1000) -> Finding:
    """r < 1 for p = q, over equally spaced numbers with and without the right end."""
    closed = sum(not Fraction(k, numbers) < 1 for k in range(numbers + 1))
    half_open = sum(not Fraction(k, numbers) < 1 for k in range(numbers))
    left = sum(max(a - a, Fraction(0)) for a in P)
    return only_if(
        half_open == 0,
        closed == 0,
        f"Of {numbers + 1:,} numbers in [0, 1] {closed} rejects, with a residual of mass {left}; of "
        f"{numbers:,} in [0, 1) {half_open} do.",
    )


@DOCUMENT.claim(
    "exact.clip",
    where="Practical notes",
    quote="Clip ratios to avoid NaNs",
    correct="Only if the denominator is what is clipped, as in the article's code; a clipped ratio is "
    "still a NaN. Tokens that the draft can draw have q > 0.",
)
def clip_avoids_nan() -> Finding:
    with np.errstate(invalid="ignore"):
        clipped = np.clip(np.float64(0.0) / np.float64(0.0), 0.0, 1.0)
    positive = min(1.0, 0.0 / max(0.0, 1e-10))
    return only_if(
        positive == 0,
        not np.isnan(clipped),
        f"0/0 clipped to [0, 1] is {clipped}; with a denominator of at least 1e-10 it is {positive}.",
    )


@DOCUMENT.claim(
    "exact.branches",
    where="Practical notes",
    quote="reuses the prefix KV, then branches K times",
    correct="The K + 1 contexts lie on one path without a branch: one pass over prefix and draft has all of "
    "their rows.",
)
def branches(prefix: int = 100, k: int = 5) -> Finding:
    """The contexts n, n + 1, …, n + K."""
    branching = sum(len(children) > 1 for children in ({i + 1} for i in range(prefix, prefix + k)))
    return decide(
        branching == k,
        f"{branching} branches for {k + 1} contexts: one pass reads {prefix + k} tokens, a batch of contexts "
        f"would read {sum(range(prefix, prefix + k + 1))} (n = {prefix}, K = {k}).",
    )


DOCUMENT.not_checkable(
    "exact.rates",
    where="Why this works",
    quote="often 70–95% in practice",
    needs="pairs of language models and their text",
)


@DOCUMENT.claim(
    "exact.speed",
    where="Why this works",
    quote="2–4× wall-clock speedup",
    correct="Only for a band of α that depends on the draft's cost, not for all of the 70–95% that the "
    "article names.",
)
def two_to_four(low: float = 2.0, high: float = 4.0, alphas: tuple[float, float] = (0.7, 0.95)) -> Finding:
    """The best K at both ends of the acceptance rates, for several costs."""
    speeds = {r: (best_speed(alphas[0], r), best_speed(alphas[1], r)) for r in (0.02, 0.1, 0.2)}
    needed = [needed_alpha(wanted, 0.1) for wanted in (low, high)]
    inside = [low <= value <= high for pair in speeds.values() for value in pair]
    shown = ", ".join(f"{least:.2f} to {most:.2f} at r = {r}" for r, (least, most) in speeds.items())
    return only_if(
        any(inside),
        all(inside),
        f"For α from {alphas[0]} to {alphas[1]} and the best K the speed is {shown}; at r = 0.1 it takes α "
        f"from {needed[0]:.3f} to {needed[1]:.3f} to be within the range.",
    )


def law_of_staying(p: Row, q: Row, before: int) -> list[Fraction]:
    """What a Metropolis–Hastings step with that test gives, which stays at `before` after a rejection."""
    return [
        min(a, b) + (1 - overlap(p, q)) * (x == before) for x, (a, b) in enumerate(zip(p, q, strict=True))
    ]


def law_of_residual(p: Row, q: Row) -> list[Fraction]:
    """What the standard rule gives, which draws from the residual after a rejection."""
    rest = 1 - overlap(p, q)
    return [min(a, b) + rest * left for a, b, left in zip(p, q, positive_part(p, q), strict=True)]


@DOCUMENT.claim(
    "exact.mh",
    where="Why this works",
    quote="the accept/reject as a rejection-sampling / MH-style correction",
    correct="The test is theirs, the correction is not: rejection sampling proposes anew, "
    "Metropolis–Hastings stays, and with this test neither has the target's law. The residual draw makes "
    "it exact.",
)
def like_a_chain(p: Row = P, q: Row = Q) -> Finding:
    anew = distance(min_law(p, q), p)  # rejection sampling, with a new proposal
    stays = max(distance(law_of_staying(p, q, x), p) for x in range(len(p)))
    residual = distance(law_of_residual(p, q), p)
    return decide(
        anew == 0 or stays == 0,
        f"For one token TV = {anew} with a new proposal, up to {stays} if the last token stays, "
        f"{residual} with the residual.",
    )


#: The works that the article lists: first author and year, the title there, and the title on arXiv.
REFERENCES = (
    ("Leviathan 2023", "Fast Inference from Transformers via Speculative Decoding", "2211.17192",
     "Fast Inference from Transformers via Speculative Decoding"),
    ("Chen 2023", "Accelerating Large Language Model Decoding with Speculative Sampling", "2302.01318",
     "Accelerating Large Language Model Decoding with Speculative Sampling"),
    ("Cai 2023", "Medusa: Simple Framework for Trading Compute for Performance via Speculative Decoding",
     "2401.10774", "Medusa: Simple LLM Inference Acceleration Framework with Multiple Decoding Heads"),
    ("Fu 2024", "Self-Speculative Decoding", "2402.02057",
     "Break the Sequential Dependency of LLM Inference Using Lookahead Decoding"),
)  # fmt: skip


@DOCUMENT.claim(
    "exact.references",
    where="References",
    quote="Medusa: Simple Framework for Trading Compute … Fu, Y., et al. (2024). Self-Speculative Decoding",
    correct="Medusa is a “Simple LLM Inference Acceleration Framework with Multiple Decoding Heads”; "
    "self-speculative decoding is by Zhang et al. (arXiv 2309.08168), Fu et al. wrote of lookahead "
    "decoding.",
)
def references(listed: tuple[tuple[str, str, str, str], ...] = REFERENCES) -> Finding:
    wrong = [f"{who} (arXiv {number})" for who, title, number, published in listed if title != published]
    which = f": {', '.join(wrong)}" if wrong else ""
    return decide(
        not wrong, f"{len(listed) - len(wrong)} of {len(listed)} titles are those of the works{which}."
    )
