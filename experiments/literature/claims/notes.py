"""Notes on speculative decoding: drafting methods, the accept test, lenience, and the theorems of Leviathan
et al.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise, product

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
    pairs,
    row,
    step,
)
from experiments.literature.claims.speed import root, speed
from specsim.models import TableModel, branching, prompt_lookup
from specsim.theory import expected_tokens, expected_tokens_by_position
from specsim.theory._enumeration import prove

__all__ = ["DOCUMENT"]

DOCUMENT = Document(
    title="Speculative decoding (aarnphm.xyz)",
    source=(
        "Notes at <https://aarnphm.xyz/thoughts/Speculative-decoding>, published 2025-05-21, modified "
        "2026-06-05, by the owner of that site."
    ),
    listed=43,
    another_subject=7,
    repeated=16,
    unmeasured=2,
)


# --- drafting --------------------------------------------------------------------------------------------

DOCUMENT.not_checkable(
    "notes.parallel",
    where="opening quotation",
    quote="a single input token takes about as much time as … K input tokens",
    needs="a large model, timed on the hardware in question at batch size 1 for growing K",
)


@DOCUMENT.claim(
    "notes.eagle",
    where="EAGLE, distribution skew",
    quote="EAGLE does not involve any fine-tuning of the target model, therefore preservation … is "
    "theoretically guaranteed",
    correct="Only if each child of the tree is tested with the law it was drawn from; an untouched target is "
    "not enough.",
)
def training_keeps_the_law() -> Finding:
    """EAGLE-2's most probable children, and sampled ones that are pruned by probability."""
    target, draft = TableModel(fractions(3, 2, 1)), TableModel(fractions(2, 1, 1))
    top = prove(target, draft, rule="deterministic_children", gamma=branching(2, 2, sampling="top")).tv
    pruned = prove(target, draft, rule="pruned_children", gamma=branching(3)).tv
    return only_if(
        top == 0,
        pruned == 0,
        f"TV = {top} for the most probable children, tested as certain; {float(pruned):.3f} for sampled "
        "children that are pruned by probability.",
    )


@DOCUMENT.claim(
    "notes.medusa",
    where="EAGLE, distribution skew",
    quote="This is not the case with … Medusa",
    correct="Medusa's typical acceptance does not keep the target's law.",
)
def medusa_loses_the_law(rule: str = "typical") -> Finding:
    found = max(prove(TARGET, DRAFT, rule=rule, context=(x,)).tv for x in range(3))
    return decide(found > 0, f"TV = {float(found):.3f} on the small pair.")


@DOCUMENT.claim(
    "notes.lookahead_law",
    where="EAGLE, distribution skew",
    quote="This is not the case with Lookahead",
    correct="Only for an approximate accept test. Guesses from n-grams keep the law if they are tested as "
    "certain drafts.",
)
def lookahead_loses_the_law() -> Finding:
    guess = TableModel([fractions(0, 1, 0), fractions(0, 0, 1), fractions(1, 0, 0)])
    kept = max(prove(TARGET, guess, rule="one_hot", context=(x,)).tv for x in range(3))
    lost = max(prove(TARGET, guess, rule="typical", context=(x,)).tv for x in range(3))
    return only_if(
        lost > 0,
        kept > 0,
        f"TV = {kept} for guesses that are tested as certain drafts, {float(lost):.3f} with typical "
        "acceptance.",
    )


@DOCUMENT.claim(
    "notes.lookup_empty",
    where="ngrams, code of prompt lookup",
    quote="If no match is found, return an empty tensor",
    correct="The code also returns nothing if a match is followed by fewer tokens than it asks for.",
)
def lookup_finds_nothing(tokens: int = 10) -> Finding:
    text = list(b"to be to")
    strict, loose = prompt_lookup(text, tokens, whole=True), prompt_lookup(text, tokens)
    return decide(
        not (loose and not strict),
        f"In “to be to” {len(loose)} tokens follow an earlier match; asked for {tokens}, the code returns "
        f"{len(strict)}.",
    )


# --- the accept test -------------------------------------------------------------------------------------


@DOCUMENT.claim(
    "notes.pointwise",
    where="von Neumann acceptance rejection, variants",
    quote="accept iff U ≤ f(Y)/(c(Y)g(Y)). Correctness is unchanged",
    correct="The envelope must be one constant. With c(x), accepted samples follow f/c, normalised.",
)
def pointwise_envelope(rule: str = "pointwise_envelope") -> Finding:
    """c(x) = max(1, p/q), the tightest."""
    found = max(prove(TARGET, DRAFT, rule=rule, context=(x,)).tv for x in range(3))
    law = ", ".join(str(x) for x in min_law(P, Q))
    return decide(
        found == 0,
        f"With c = max(1, p/q) a step of 2 has TV = {float(found):.3f}; what passes has the law ({law}) "
        f"where ({', '.join(map(str, P))}) is wanted.",
    )


@DOCUMENT.claim(
    "notes.correct",
    where="On Correctness of Speculative Sampling",
    quote="P(x = x') = p(x')",
    correct="Speculative sampling with the standard rule is lossless.",
)
def identically_distributed(rule: str = "standard") -> Finding:
    found = max(prove(TARGET, DRAFT, rule=rule, gamma=3, context=(x,)).tv for x in range(3))
    tried = [prove(TableModel(p), TableModel(q), rule=rule, gamma=1).tv for p, q in pairs()]
    return decide(
        max(found, *tried) == 0,
        f"TV = {found} after 3 drafted tokens of the small pair, and TV = {max(tried)} over {len(tried)} "
        "pairs of rows with zeros and ties.",
    )


@DOCUMENT.claim(
    "notes.theorem_3_5",
    where="Theorem 3.5",
    quote="β = 1 - D_LK(p,q)",
    correct="A drafted token is accepted with probability Σ min(p, q).",
)
def acceptance(factor: int = 1) -> Finding:
    tried = list(pairs())
    good = sum(
        sum(b * (1 if b <= a else a / b) for a, b in zip(p, q, strict=True) if b) == factor * overlap(p, q)
        for p, q in tried
    )
    return decide(
        good == len(tried), f"E_q min(1, p/q) = Σ min(p, q) = 1 - D_LK in {good} of {len(tried)} pairs."
    )


# --- tokens, time and operations -------------------------------------------------------------------------


@DOCUMENT.claim(
    "notes.geometric",
    where="acceptance probability",
    quote="with success probability of 1 - α and cap γ + 1",
    correct="For independent acceptances a step emits n ≤ γ tokens with probability α^{n-1}(1 - α), and γ + "
    "1 with α^γ.",
)
def capped_geometric(gamma: int = 3, extra: int = 0) -> Finding:
    alpha = overlap(P, Q)
    law = step(TableModel(P), TableModel(Q), gamma=gamma).laws[()]
    masses = [
        sum((weight for emitted, weight in law.items() if len(emitted) == n), Fraction(0))
        for n in range(1, gamma + 2)
    ]
    formula = [alpha ** (n + extra) * (1 - alpha) for n in range(gamma)] + [alpha ** (gamma + extra)]
    shown = ", ".join(map(str, masses))
    return decide(
        masses == formula, f"1 to {gamma + 1} tokens have probability {shown} for a pair with α = {alpha}."
    )


@DOCUMENT.claim(
    "notes.expected",
    where="acceptance probability",
    quote="α = E(β) assuming β are i.i.d. … (1 - α^{γ+1})/(1 - α)",
    correct="The formula needs that assumption: if the β of a step rise and fall together, a step emits more "
    "tokens.",
)
def mean_of_beta(low: float = 0.3, high: float = 0.95, gamma: int = 5, extra: int = 0) -> Finding:
    """β has one of two values: drawn for each token, and once for a step."""
    formula = float(expected_tokens((low + high) / 2, gamma + extra))
    each = [float(expected_tokens_by_position(betas)) for betas in product((low, high), repeat=gamma)]
    anew = float(np.mean(each))
    once = float(np.mean(expected_tokens(np.array([low, high]), gamma)))
    return decide(
        np.isclose(anew, formula),
        f"With β = {low} or {high} and γ = {gamma} a step emits {anew:.2f} tokens if β is drawn for each "
        f"token, {once:.2f} if for the whole step; the formula at the mean gives {formula:.2f}.",
    )


def _enumerated(gamma: int) -> tuple[Fraction, Fraction]:
    """α of the pair of rows, and the tokens of a step."""
    return overlap(P, Q), prove(TableModel(P), TableModel(Q), gamma=gamma).mean_tokens


@DOCUMENT.claim(
    "notes.theorem_3_8",
    where="Theorem 3.8",
    quote="(1 - α^{γ+1})/((1 - α)(γc + 1))",
    correct="This is the improvement in wall time for independent acceptances.",
)
def wall_time(offset: int = 1, c: Fraction = Fraction(1, 10)) -> Finding:
    """The formula against the tokens of enumerated steps; `offset` is the 1 in γ + 1."""
    shown, good = [], True
    for gamma in (1, 2, 3, 4):
        alpha, tokens = _enumerated(gamma)
        formula = (1 - alpha ** (gamma + offset)) / ((1 - alpha) * (gamma * c + 1))
        good = good and formula == tokens / (gamma * c + 1)
        shown.append(f"{float(formula):.4f} at γ = {gamma}")
    return decide(
        good,
        f"Formula and enumeration are {'equal' if good else 'unequal'} for a pair with α = {alpha}, c = 0.1: "
        f"{', '.join(shown)}.",
    )


@DOCUMENT.claim(
    "notes.theorem_3_11",
    where="Theorem 3.11",
    quote="(1 - α)(γĉ + γ + 1)/(1 - α^{γ+1})",
    correct="This is the factor in arithmetic operations for independent acceptances.",
)
def operations(offset: int = 1, c_hat: Fraction = Fraction(1, 10)) -> Finding:
    """γ draft tokens at ĉ and γ + 1 target tokens, for each token of an enumerated step; `offset` is the 1 in
    γ + 1.
    """
    shown, good = [], True
    for gamma in (1, 2, 3, 4):
        alpha, tokens = _enumerated(gamma)
        formula = (1 - alpha) * (gamma * c_hat + gamma + offset) / (1 - alpha ** (gamma + 1))
        good = good and formula == (gamma * c_hat + gamma + 1) / tokens
        shown.append(f"{float(formula):.3f} at γ = {gamma}")
    return decide(
        good,
        f"Formula and enumeration are {'equal' if good else 'unequal'} for a pair with α = {alpha}, ĉ = 0.1: "
        f"{', '.join(shown)}.",
    )


# --- lenience --------------------------------------------------------------------------------------------

LENIENCES = (Fraction(1), Fraction(1, 2), Fraction(3, 10), Fraction(1, 10))


def _lenient_alpha(p: Row, q: Row, lenience: Fraction) -> Fraction:
    return sum((min(a / lenience, b) for a, b in zip(p, q, strict=True)), Fraction(0))


@DOCUMENT.claim(
    "notes.greedy_lenience",
    where="footnote on greedy decoding",
    quote="accept token x … in case of p(x) ≤ l · max(p)",
    correct="The sign must be ≥: as printed the test keeps improbable tokens and rejects the argmax.",
)
def greedy_lenience_sign(sign: str = "≤", lenience: Fraction = Fraction(1, 2)) -> Finding:
    """What is kept of the draft, if the argmax replaces the rest; at l = 1 only the argmax should come
    out.
    """

    def kept(share: Fraction) -> list[int]:
        bound = share * max(P)
        return [x for x in range(3) if (P[x] <= bound if sign == "≤" else P[x] >= bound)]

    best, worst = P.index(max(P)), P.index(min(P))
    law = [Q[x] if x in kept(Fraction(1)) else Fraction(0) for x in range(3)]
    law[best] += 1 - sum(law)
    found = distance(law, [Fraction(x == best) for x in range(3)])
    said = {x: "keeps" if x in kept(lenience) else "rejects" for x in (best, worst)}
    return decide(
        best in kept(lenience) and found == 0,
        f"At l = {lenience} the test {said[worst]} the least probable token (p = {P[worst]}) and "
        f"{said[best]} the argmax (p = {P[best]}); at l = 1 the law has TV = {float(found):.3f} from the "
        "argmax.",
    )


@DOCUMENT.claim(
    "notes.lenience_raises",
    where="footnote on lenience",
    quote="l increases α",
    correct="α rises as l falls.",
)
def lenience_raises_alpha(leniences: tuple[Fraction, ...] = LENIENCES[::-1]) -> Finding:
    rates = [_lenient_alpha(P, Q, lenience) for lenience in leniences]
    shown = ", ".join(
        f"{float(rate):.3f} at l = {float(lenience):g}"
        for rate, lenience in zip(rates, leniences, strict=True)
    )
    return decide(all(before <= after for before, after in pairwise(rates)), f"α is {shown}.")


@DOCUMENT.claim(
    "notes.improvement_factor",
    where="wall-time improvement",
    quote="Improvement factor (IF) determines the value of α",
    correct="It is the other way round: α follows from p and q; the factor follows from α, γ and c, and "
    "one factor belongs to many α.",
)
def factor_determines(
    factor: float = 2.0, costs: tuple[tuple[int, float], ...] = ((2, 0.05), (4, 0.05), (4, 0.2), (8, 0.1))
) -> Finding:
    """The α at which each (γ, c) has that factor."""
    alphas = {
        (gamma, c): root(lambda a, gamma=gamma, c=c: speed(a, gamma, c) - factor, 0.0, 1.0)  # type: ignore[misc]
        for gamma, c in costs
    }
    shown = ", ".join(f"{alpha:.3f} at γ = {gamma}, c = {c}" for (gamma, c), alpha in alphas.items())
    return decide(
        max(alphas.values()) - min(alphas.values()) < 1e-9, f"A factor of {factor:g} means α = {shown}."
    )


@DOCUMENT.claim(
    "notes.corollary_3_4",
    where="Corollary 3.4",
    quote="symmetric divergence in [0,1] … =0 ⟺ p=q … =1 ⟺ p and q have disjoint support",
    correct="It is the total variation distance, which has all of these.",
)
def is_a_distance(size: int = 3, parts: int = 4, factor: int = 1) -> Finding:
    """On all pairs of pmfs with such entries; `factor` times the divergence."""
    found = [
        (p, q, factor * (1 - overlap(p, q)), factor * (1 - overlap(q, p))) for p, q in pairs(size, parts)
    ]
    good = sum(
        one == other
        and 0 <= one <= 1
        and (one == 0) == (p == q)
        and (one == 1) == (not any(a and b for a, b in zip(p, q, strict=True)))
        for p, q, one, other in found
    )
    return decide(
        good == len(found), f"All of it holds for {good} of {len(found)} pairs of pmfs over {size} tokens."
    )


@DOCUMENT.claim(
    "notes.corollary_3_6",
    where="Corollary 3.6",
    quote="α = 1 - E(D_LK(p,q)) = E(min(p,q))",
    correct="Only if min(p, q) is summed over the tokens; as the mean of the minimum at a drawn token it is "
    "another number.",
)
def expected_minimum() -> Finding:
    """The three readings, on the rows of the small pair of models, each context as likely."""
    rows = [(row(TARGET, [x]), row(DRAFT, [x])) for x in range(3)]
    alpha = sum((1 - (1 - overlap(p, q)) for p, q in rows), Fraction(0)) / 3
    summed = sum((sum(map(min, p, q), Fraction(0)) for p, q in rows), Fraction(0)) / 3
    drawn = (
        sum(
            (sum((b * min(a, b) for a, b in zip(p, q, strict=True)), Fraction(0)) for p, q in rows),
            Fraction(0),
        )
        / 3
    )
    return only_if(
        alpha == summed,
        alpha == drawn,
        f"α = {alpha}, the sums have mean {summed}, the minimum at the drafted token {drawn}.",
    )


@DOCUMENT.claim(
    "notes.corollary_3_9",
    where="Corollary 3.9",
    quote="∀ α > c ∃ γ … improvement by a factor of (1+α)/(1+c)",
    correct="γ = 1 has that factor, which is above 1 if and only if α > c.",
)
def gains_above_c(gamma: int = 1, steps: int = 20) -> Finding:
    grid = [Fraction(i, steps) for i in range(1, steps)]
    points = [(alpha, c) for alpha in grid for c in grid]
    good = sum(
        (1 - alpha ** (gamma + 1)) / ((1 - alpha) * (gamma * c + 1)) == (1 + alpha) / (1 + c)
        and ((1 + alpha) / (1 + c) > 1) == (alpha > c)
        for alpha, c in points
    )
    return decide(good == len(points), f"Both hold at {good} of {len(points)} points (α, c), at γ = {gamma}.")
