"""Notes on speculative decoding: rejection sampling, the paper's theorems with their proofs, drafting methods."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise, product

import numpy as np

from experiments.claims.anatomy import Claim, Outcome, decide, only_if
from experiments.claims.laws import (
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
    step,
)
from experiments.claims.speed import best_speed, speed
from specsim.drafts import branching, prompt_lookup
from specsim.models import TableModel
from specsim.theory import expected_tokens, expected_tokens_by_position, operations_factor, optimal_gamma
from specsim.theory._enumeration import prove

__all__ = ["CLAIMS"]

SOURCE = "notes on speculative decoding"

ALPHAS = (0.5, 0.6, 0.7, 0.8, 0.9)
COSTS = (0.01, 0.02, 0.05, 0.1, 0.2)


# --- drafting --------------------------------------------------------------------------------------------


def lookahead_of(low: int = 2, high: int = 5) -> Outcome:
    best = {(alpha, c): int(optimal_gamma(alpha, c)) for alpha in ALPHAS for c in COSTS}
    inside = [pair for pair, gamma in best.items() if low <= gamma <= high]
    return only_if(
        bool(inside),
        len(inside) == len(best),
        f"only for drafts that are dear or often wrong: the best γ lies there in {len(inside)} of {len(best)} cases, and "
        f"goes from {min(best.values())} to {max(best.values())} for α from {ALPHAS[0]} to {ALPHAS[-1]} and c from "
        f"{COSTS[0]} to {COSTS[-1]}",
    )


def five_tokens(gamma: int = 5, share: float = 0.9) -> Outcome:
    """Whether γ = 5 has at least `share` of the best speed."""
    kept = {(alpha, c): speed(alpha, gamma, c) / best_speed(alpha, c) for alpha in ALPHAS for c in COSTS}
    good = sum(value >= share for value in kept.values())
    worst = min(kept, key=lambda pair: kept[pair])
    return only_if(
        good > 0,
        good == len(kept),
        f"only in the middle: γ = {gamma} has at least {share:.0%} of the best speed in {good} of {len(kept)} cases, "
        f"α {ALPHAS[0]} to {ALPHAS[-1]} and c {COSTS[0]} to {COSTS[-1]}; {kept[worst]:.0%} of it at α = {worst[0]}, c = "
        f"{worst[1]}",
    )


def fused_width(width: int = 8, factor: int = 2) -> Outcome:
    features, embeddings = np.ones((2, 3, width)), np.ones((2, 3, width))
    product = features * embeddings
    joined = np.concatenate([features, embeddings], axis=-1)
    return decide(
        product.shape[-1] == factor * width,
        f"the product of two arrays {features.shape} has shape {product.shape}; {joined.shape} comes from joining them",
    )


def more_tokens_than_passes() -> Outcome:
    trees = {depth: branching(*[2] * depth).size for depth in (2, 3, 4)}
    return decide(
        all(size > depth for depth, size in trees.items()),
        "two children a node: "
        + ", ".join(f"{size} tokens in {depth} passes" for depth, size in trees.items()),
    )


def training_keeps_the_law() -> Outcome:
    """The target untouched, with EAGLE-2's most probable children, and with sampled ones pruned by probability."""
    three = fractions(2, 1, 1)
    target, draft = TableModel(fractions(3, 2, 1)), TableModel(three)
    top = prove(target, draft, rule="deterministic_children", gamma=branching(2, 2, drawing="top"))
    pruned = prove(target, draft, rule="pruned_children", gamma=branching(3))
    return only_if(
        top.exact,
        pruned.exact,
        f"only if children are tested as what they were drawn by: the most probable ones, taken as certain, give TV = "
        f"{top.tv}; sampled ones pruned by probability TV = {float(pruned.tv):.3f}, with the same untouched target",
    )


def medusa_loses_the_law() -> Outcome:
    found = max(prove(TARGET, DRAFT, rule="typical", context=(x,)).tv for x in range(3))
    return decide(
        found > 0, f"typical acceptance on the small pair: TV = {float(found):.3f} from the target's law"
    )


def lookahead_loses_the_law() -> Outcome:
    """Guesses from the text, verified as drafts that are certain; and by typical acceptance."""
    guess = TableModel([fractions(0, 1, 0), fractions(0, 0, 1), fractions(1, 0, 0)])
    kept = max(prove(TARGET, guess, rule="one_hot", context=(x,)).tv for x in range(3))
    lost = max(prove(TARGET, guess, rule="typical", context=(x,)).tv for x in range(3))
    return only_if(
        lost > 0,
        kept > 0,
        f"only if guesses are verified otherwise than as what they are: n-grams tested as certain drafts give TV = {kept}, "
        f"the same ones by typical acceptance TV = {float(lost):.3f}",
    )


def lookup_finds_nothing(tokens: int = 10) -> Outcome:
    text = list(b"to be to")
    strict, loose = prompt_lookup(text, tokens, whole=True), prompt_lookup(text, tokens)
    return decide(
        not (loose and not strict),
        f"in “to be to” the last token occurs before, and {len(loose)} tokens follow it; the snippet asks for {tokens}, "
        f"and returns {len(strict)}",
    )


def lookup_avoids_itself(tokens: int = 10, longest: int = 60) -> Outcome:
    """Every place that a match of n tokens can have in a text of up to `longest`."""
    places = [
        (size, n, i + n)
        for size in range(2, longest + 1)
        for n in (1, 2, 3)
        for i in range(size - n + 1)
        if start_fits(i + n, size, tokens)
    ]
    itself = sum(start == size for size, n, start in places)
    second = sum(not start < size - n for size, n, start in places)
    return decide(
        itself == 0,
        f"of {len(places):,} places with {tokens} tokens after the match {itself} are the end of the text itself; the "
        f"second condition excludes {second} more, so the first alone does it",
    )


def start_fits(start: int, size: int, tokens: int) -> bool:
    """Whether a continuation of that many tokens ends within the text."""
    return start + tokens <= size


# --- rejection sampling ----------------------------------------------------------------------------------


def envelope_at_least_one() -> Outcome:
    """The least envelope of f = Z·p over q, for Z = 1 and Z = 1/10."""
    least = [max(z * a / b for a, b in zip(P, Q, strict=True)) for z in (Fraction(1), Fraction(1, 10))]
    return only_if(
        least[0] >= 1,
        least[1] >= 1,
        f"only if f is normalised: the least envelope of the example is {float(least[0]):.2f} for Z = 1 and "
        f"{float(least[1]):.2f} for Z = 0.1, where M = 1 would propose {1 / float(least[1]):.1f} times as often",
    )


def proposals(extra: Fraction = Fraction(0)) -> Outcome:
    """E[N] = M/Z, with f = Z·p, M any envelope."""
    good = total = 0
    for z in (Fraction(1), Fraction(3), Fraction(1, 5)):
        for slack in (1, 2):
            m = slack * max(z * a / b for a, b in zip(P, Q, strict=True))
            passing = sum(b * (z * a / (m * b)) for a, b in zip(P, Q, strict=True))
            good += 1 / passing == m / z + extra
            total += 1
    return decide(
        good == total,
        f"1/Σ g·f/(Mg) = M/Z in {good} of {total} cases, Z from 0.2 to 3; {float(1 / passing):.2f} in the last",
    )


def von_neumann_is_right() -> Outcome:
    found = max(prove(TARGET, DRAFT, rule="von_neumann", context=(x,)).tv for x in range(3))
    return decide(found == 0, f"the law of what is accepted is f/Z: TV = {found} on the small pair")


def pointwise_envelope(rule: str = "pointwise_envelope") -> Outcome:
    """c(x) = max(1, p/q), the tightest."""
    found = max(prove(TARGET, DRAFT, rule=rule, context=(x,)).tv for x in range(3))
    law = min_law(P, Q)
    shown = ", ".join(f"{float(x):.3f}" for x in law)
    return decide(
        found == 0,
        f"with c = max(1, p/q) a step of 2 is TV = {float(found):.3f} from the target's law: what passes is ∝ f/c, here "
        f"({shown}) where ({', '.join(f'{float(x):.3f}' for x in P)}) was wanted, TV = {float(distance(law, P)):.3f}",
    )


def pointwise_acceptance() -> Outcome:
    envelope = [max(Fraction(1), a / b) for a, b in zip(P, Q, strict=True)]
    passing = sum(b * (a / (c * b)) for a, b, c in zip(P, Q, envelope, strict=True))
    direct = sum(a / c for a, c in zip(P, envelope, strict=True))
    return decide(passing == direct, f"Σ g·f/(cg) = Σ f/c = {float(direct):.4f} in the example")


def squeezing(numbers: int = 64) -> Outcome:
    """Early acceptance at u ≤ h/(Mg) with h = f/2, and the full test, for u = 0, 1/64, …"""
    m = max(a / b for a, b in zip(P, Q, strict=True))
    same = 0
    for a, b in zip(P, Q, strict=True):
        for k in range(numbers):
            u = Fraction(k, numbers)
            full = u <= a / (m * b)
            same += full == (u <= a / (2 * m * b) or full)
    early = sum(a / (2 * m) for a in P)
    return decide(
        same == numbers * len(P),
        f"{same} of {numbers * len(P)} decisions are the same; {float(early):.3f} of the proposals pass early",
    )


def non_iterative_is_right() -> Outcome:
    found = max(prove(TARGET, DRAFT, rule="non_iterative", context=(x,)).tv for x in range(3))
    return decide(found == 0, f"accept with p/(Mq), else sample p: TV = {found} on the small pair")


def non_iterative_accepts_less() -> Outcome:
    good = total = 0
    for p, q in pairs():
        if min(q) > 0:
            m = max(a / b for a, b in zip(p, q, strict=True))
            expected = sum(b * (a / (m * b)) for a, b in zip(p, q, strict=True))
            smallest = min(b / a for a, b in zip(p, q, strict=True) if a)
            good += expected == sum(a * smallest for a in p) <= overlap(p, q)
            total += 1
    example = 1 / max(a / b for a, b in zip(P, Q, strict=True))
    return decide(
        good == total,
        f"the identity and the bound hold in {good} of {total} pairs; {float(example):.3f} against "
        f"{float(overlap(P, Q)):.3f} in the example",
    )


# --- speculative sampling --------------------------------------------------------------------------------


def identically_distributed(rule: str = "standard") -> Outcome:
    found = [prove(TARGET, DRAFT, rule=rule, gamma=3, context=(x,)).tv for x in range(3)]
    small = max(prove(TableModel(p), TableModel(q), rule=rule, gamma=1).tv for p, q in pairs())
    return decide(
        max(*found, small) == 0,
        f"TV = {max(found)} after 3 drafted tokens of the small pair, TV = {small} over {sum(1 for _ in pairs())} pairs "
        "of rows with zeros and ties",
    )


def keep_and_reject() -> Outcome:
    """Keep if q ≤ p; where q ≥ p reject with probability 1 - p/q. Both lines speak of q = p."""
    found = step(TARGET, DRAFT, accept=lambda p, q, x: Fraction(1) if q[x] <= p[x] else 1 - (1 - p[x] / q[x]))
    ties = {1 - p[x] / q[x] for p, q in pairs() for x in range(3) if p[x] == q[x] > 0}
    return decide(
        found.tv == 0 and ties == {0},
        f"TV = {found.tv}; where q = p the second line rejects with probability {max(ties)}, as the first says",
    )


def strict_or_not(bits: int = 24) -> Outcome:
    """A token with p = 0 is rejected at r > 0, so accepted at r = 0."""
    at_zero, above = (not r > 0.0 for r in (0.0, 2.0**-bits))
    return only_if(
        not above,
        not at_zero,
        f"only if r is never 0, as in the open interval: a token with p = 0 is {'kept' if at_zero else 'rejected'} at r = 0, "
        f"once in {2**bits:,} draws of a {bits}-bit generator on [0, 1)",
    )


def normaliser() -> Outcome:
    good = total = 0
    for p, q in pairs():
        mass = sum(max(a - b, Fraction(0)) for a, b in zip(p, q, strict=True))
        good += mass == 1 - overlap(p, q)
        total += 1
    return decide(good == total, f"Σ (p - q)₊ = 1 - Σ min(p, q) in {good} of {total} pairs")


def acceptance() -> Outcome:
    """Theorem 3.5, the two lines of its proof."""
    good = total = 0
    for p, q in pairs():
        drawn = sum(b * (1 if b <= a else a / b) for a, b in zip(p, q, strict=True) if b)
        good += drawn == overlap(p, q)
        total += 1
    return decide(good == total, f"E_q of 1 or p/q equals Σ min(p, q) = 1 - D_LK in {good} of {total} pairs")


def natural_divergence() -> Outcome:
    good = total = 0
    for p, q in pairs():
        middle = [(a + b) / 2 for a, b in zip(p, q, strict=True)]
        ways = {sum(abs(a - m) for a, m in zip(row, middle, strict=True)) for row in (p, q)}
        good += ways == {1 - overlap(p, q)}
        total += 1
    return decide(good == total, f"Σ|p - M| = Σ|q - M| = 1 - Σ min(p, q) in {good} of {total} pairs")


def divergence_is_one() -> Outcome:
    good = total = 0
    for p, q in pairs():
        d = distance(p, q)
        disjoint = not any(a and b for a, b in zip(p, q, strict=True))
        good += d == distance(q, p) and 0 <= d <= 1 and (d == 0) == (p == q) and (d == 1) == disjoint
        total += 1
    return decide(
        good == total, f"symmetric, in [0, 1], 0 for equal and 1 for disjoint rows in {good} of {total} pairs"
    )


# --- tokens and time -------------------------------------------------------------------------------------


def _enumerated(gamma: int) -> tuple[Fraction, Fraction]:
    """α of the example pair of rows, and the tokens of a step."""
    return overlap(P, Q), prove(TableModel(P), TableModel(Q), gamma=gamma).mean_tokens


def wall_time(offset: int = 1, c: Fraction = Fraction(1, 10)) -> Outcome:
    """(1 - α^{γ+1})/((1 - α)(γc + 1)) against the tokens of enumerated steps; `offset` is the 1 in γ + 1."""
    shown, good = [], True
    for gamma in (1, 2, 3, 4):
        alpha, tokens = _enumerated(gamma)
        formula = (1 - alpha ** (gamma + offset)) / ((1 - alpha) * (gamma * c + 1))
        good = good and formula == tokens / (gamma * c + 1)
        shown.append(f"{float(formula):.4f} and {float(tokens / (gamma * c + 1)):.4f} at γ = {gamma}")
    return decide(
        good, f"formula and enumeration of a pair with α = {float(alpha):.3f}, c = 0.1: " + ", ".join(shown)
    )


def capped_geometric() -> Outcome:
    good, gamma = True, 3
    alpha = overlap(P, Q)
    law = step(TableModel(P), TableModel(Q), gamma=gamma).laws[()]
    shown = []
    for n in range(1, gamma + 2):
        mass = sum((weight for emitted, weight in law.items() if len(emitted) == n), Fraction(0))
        good = good and mass == (alpha ** (n - 1) * (1 - alpha) if n <= gamma else alpha**gamma)
        shown.append(f"{float(mass):.4f}")
    return decide(
        good, f"1 to {gamma + 1} tokens come with probability {', '.join(shown)} at α = {float(alpha):.3f}"
    )


def mean_of_beta(low: float = 0.3, high: float = 0.95, gamma: int = 5) -> Outcome:
    """β one of two values: drawn anew for each token, and once for a step."""
    formula = float(expected_tokens((low + high) / 2, gamma))
    anew = float(
        np.mean([expected_tokens_by_position(betas) for betas in product((low, high), repeat=gamma)])
    )
    once = float(np.mean([expected_tokens(beta, gamma) for beta in (low, high)]))
    return only_if(
        np.isclose(anew, formula),
        np.isclose(once, formula),
        f"only if the β of a step are independent: with β = {low} or {high}, {gamma} drafted tokens give {anew:.2f} if it is "
        f"drawn for each token, {once:.2f} if for the whole step; the formula at their mean says {formula:.2f}",
    )


def improvement_exists(gain: Callable[[float, float], float] = lambda a, c: (1 + a) / (1 + c)) -> Outcome:
    """Whether the best γ gains at least that much wherever α > c, and nothing elsewhere."""
    grid = [(a / 20, c / 20) for a in range(1, 20) for c in range(20)]
    above = [(a, c) for a, c in grid if a > c]
    reached = sum(best_speed(a, c) >= gain(a, c) - 1e-12 > 1 for a, c in above)
    none = sum(best_speed(a, c) > 1 + 1e-12 for a, c in grid if a <= c)
    alpha, cost = 0.8, 0.05
    return decide(
        reached == len(above) and none == 0,
        f"reached or passed in {reached} of {len(above)} pairs with α > c, and no gain in {len(grid) - len(above) - none} "
        f"of {len(grid) - len(above)} others; it is the value at γ = 1: {gain(alpha, cost):.2f} at α = {alpha}, c = {cost}, where "
        f"the best γ gives {best_speed(alpha, cost):.2f}",
    )


def smaller_gamma_gains() -> Outcome:
    gains = broken = 0
    for a in range(1, 20):
        for c in range(1, 20):
            speeds = [speed(a / 20, gamma, c / 20) for gamma in range(1, 31)]
            for gamma, value in enumerate(speeds):
                if value > 1:
                    gains += 1
                    broken += min(speeds[: gamma + 1]) <= 1
    return decide(
        broken == 0, f"of {gains:,} cases (α, c, γ) with a gain, {broken} lack one at some smaller γ"
    )


def operations(offset: int = 1, c_hat: Fraction = Fraction(1, 10)) -> Outcome:
    """γ draft tokens at ĉ and γ + 1 target tokens, per token of an enumerated step; `offset` is the 1 in γ + 1."""
    good, shown = True, []
    for gamma in (1, 2, 3, 4):
        alpha, tokens = _enumerated(gamma)
        formula = (1 - alpha) * (gamma * c_hat + gamma + offset) / (1 - alpha ** (gamma + 1))
        good = good and formula == (gamma * c_hat + gamma + 1) / tokens
        shown.append(f"{float(formula):.3f} at γ = {gamma}")
    return decide(
        good,
        f"equal to the operations per token of enumerated steps, α = {float(alpha):.3f}: " + ", ".join(shown),
    )


def more_operations(gamma: int = 5, alpha: float = 0.8, c_hat: float = 0.05) -> Outcome:
    factors = [float(operations_factor(a / 20, gamma, c / 20)) for a in range(20) for c in range(21)]
    return decide(
        min(factors) > 1,
        f"at γ = {gamma} {min(factors):.3f} to {max(factors):.2f} times the operations, over α < 1 and ĉ ≤ 1; "
        f"{float(operations_factor(alpha, gamma, c_hat)):.2f} times at α = {alpha}, ĉ = {c_hat}",
    )


def useless_without_resources(gamma: int = 5) -> Outcome:
    """If time goes with the operations, the speed is one over their factor."""
    speeds = [1 / float(operations_factor(a / 20, gamma, c / 20)) for a in range(20) for c in range(21)]
    return decide(
        max(speeds) < 1,
        f"where time goes with operations decoding is {min(speeds):.2f} to {max(speeds):.3f} times as fast at γ = {gamma}",
    )


# --- lenience --------------------------------------------------------------------------------------------


def _lenient_alpha(p: Row, q: Row, lenience: Fraction) -> Fraction:
    return sum((min(a / lenience, b) for a, b in zip(p, q, strict=True)), Fraction(0))


LENIENCES = (Fraction(1), Fraction(1, 2), Fraction(3, 10), Fraction(1, 10))


def lenience_forms() -> Outcome:
    good = total = 0
    for p, q in pairs():
        for lenience in LENIENCES:
            drawn = [(a, b) for a, b in zip(p, q, strict=True) if b]
            forms = {
                sum(b * (1 if lenience * b <= a else a / (lenience * b)) for a, b in drawn),
                sum(b * a / max(a, lenience * b) for a, b in drawn),
                sum(min(a, lenience * b) for a, b in drawn) / lenience,
                _lenient_alpha(p, q, lenience),
            }
            good += len(forms) == 1
            total += 1
    return decide(good == total, f"all four forms agree in {good} of {total} cases, l from 0.1 to 1")


def lenience_zero() -> Outcome:
    def defined(lenience: Fraction) -> bool:
        try:
            return _lenient_alpha(P, Q, lenience) >= 0
        except ZeroDivisionError:
            return False

    return only_if(
        all(map(defined, LENIENCES)),
        defined(Fraction(0)),
        f"only for l > 0: Σ min(p/l, q) divides by l; as l falls to 0.001 it reaches "
        f"{float(_lenient_alpha(P, Q, Fraction(1, 1000))):.3f}, everything",
    )


def lenience_raises_alpha() -> Outcome:
    rates = [_lenient_alpha(P, Q, lenience) for lenience in LENIENCES]
    return decide(
        all(before > after for before, after in pairwise(rates)),
        f"α is {', '.join(f'{float(rate):.3f} at l = {float(lenience):g}' for rate, lenience in zip(rates, LENIENCES, strict=True))}: it "
        "rises as l falls",
    )


def lenience_at_zero_temperature() -> Outcome:
    """One-hot rows: the rate at each l."""
    rates = {
        x: {
            _lenient_alpha(fractions(1, 0, 0), [Fraction(y == x) for y in range(3)], lenience)
            for lenience in LENIENCES
        }
        for x in (0, 1)
    }
    return decide(
        all(len(found) == 1 for found in rates.values()),
        f"for every l the acceptance is {max(rates[0])} where the argmaxes agree and {max(rates[1])} where they differ",
    )


def greedy_lenience_sign(sign: str = "≤", lenience: Fraction = Fraction(1, 2)) -> Outcome:
    """What is kept of the draft, where the argmax replaces the rest; at l = 1 only the argmax should come out."""

    def kept(share: Fraction) -> list[int]:
        bound = share * max(P)
        return [x for x in range(3) if (P[x] <= bound if sign == "≤" else P[x] >= bound)]

    best, worst = P.index(max(P)), P.index(min(P))
    wanted = [Fraction(x == best) for x in range(3)]
    law = [Q[x] if x in kept(Fraction(1)) else Fraction(0) for x in range(3)]
    law[best] += 1 - sum(law)
    found = distance(law, wanted)
    return decide(
        best in kept(lenience) and found == 0,
        f"at l = {float(lenience)} it {'keeps' if worst in kept(lenience) else 'rejects'} the least probable token (p = "
        f"{float(P[worst]):.3f}) and {'keeps' if best in kept(lenience) else 'rejects'} the argmax (p = {float(P[best]):.3f}); "
        f"at l = 1 the law is TV = {float(found):.3f} from the argmax; the sign is meant as ≥",
    )


CLAIMS: list[Claim] = [
    Claim(
        "notes.parallel",
        SOURCE,
        "opening quotation",
        "a single input token takes about as much time as K",
        "a pass over K tokens lasts as long as one over one",
        needs="a large model on the hardware in question, timed at batch size 1 for growing K",
    ),
    Claim(
        "notes.lookahead",
        SOURCE,
        "Intuition",
        "2-5 tokens with smaller speculators",
        "how many tokens to draft",
        check=lookahead_of,
    ),
    Claim(
        "notes.five",
        SOURCE,
        "speculative length",
        "num_speculative_tokens=5",
        "five drafted tokens are a good balance",
        check=five_tokens,
    ),
    Claim(
        "notes.fused",
        SOURCE,
        "EAGLE-1, architecture",
        "feature_seq * token_emb # [bs, seq_len, 2 x hidden_dim]",
        "the shape of the fused sequence",
        check=fused_width,
    ),
    Claim(
        "notes.tree",
        SOURCE,
        "EAGLE-1, architecture",
        "depth m and more than m tokens for m forward pass",
        "a tree has more tokens than passes",
        check=more_tokens_than_passes,
    ),
    Claim(
        "notes.eagle",
        SOURCE,
        "EAGLE, distribution skew",
        "preservation of outputs distributions … theoretically guaranteed",
        "an untouched target is enough for losslessness",
        check=training_keeps_the_law,
    ),
    Claim(
        "notes.medusa",
        SOURCE,
        "EAGLE, distribution skew",
        "not the case with … Medusa",
        "Medusa's acceptance changes the law",
        check=medusa_loses_the_law,
    ),
    Claim(
        "notes.lookahead_law",
        SOURCE,
        "EAGLE, distribution skew",
        "not the case with Lookahead",
        "guesses from n-grams change the law",
        check=lookahead_loses_the_law,
    ),
    Claim(
        "notes.w_cls",
        SOURCE,
        "EAGLE-1, training",
        "w_cls = 0.1",
        "the classification loss is an order of magnitude larger",
        needs="training EAGLE's head on ShareGPT",
    ),
    Claim(
        "notes.dataset",
        SOURCE,
        "EAGLE-1, training",
        "ShareGPT, 68k dialogue; LR 3e-5; clipping 0.5",
        "how EAGLE was trained",
        needs="the authors' training set and configuration",
    ),
    Claim(
        "notes.overhead",
        SOURCE,
        "EAGLE, motivation",
        "Llama 3.2 3B as draft for Llama 3.3 70B",
        "a small model of the family costs more than it gains",
        needs="both models, and a machine that holds them",
    ),
    Claim(
        "notes.lookup_empty",
        SOURCE,
        "ngrams, snippet",
        "If no match is found, return an empty tensor",
        "nothing is drafted only where nothing matches",
        check=lookup_finds_nothing,
    ),
    Claim(
        "notes.lookup_self",
        SOURCE,
        "ngrams, snippet",
        "avoid self-match",
        "the end of the text does not match itself",
        check=lookup_avoids_itself,
    ),
    Claim(
        "notes.envelope",
        SOURCE,
        "von Neumann acceptance rejection",
        "M ≥ 1 such that f(x) ≤ M g(x)",
        "the envelope is at least 1",
        check=envelope_at_least_one,
    ),
    Claim(
        "notes.proposals",
        SOURCE,
        "von Neumann acceptance rejection, acceptance rate",
        "E[N] = M/Z",
        "proposals per accepted draw",
        check=proposals,
    ),
    Claim(
        "notes.von_neumann",
        SOURCE,
        "von Neumann acceptance rejection",
        "Pr(output = i) = f(i)/Z",
        "accepted samples follow the normalised target",
        check=von_neumann_is_right,
    ),
    Claim(
        "notes.pointwise",
        SOURCE,
        "von Neumann acceptance rejection, variants",
        "accept iff U ≤ f(Y)/(c(Y)g(Y)). Correctness is unchanged",
        "an envelope that differs from token to token is as good",
        check=pointwise_envelope,
    ),
    Claim(
        "notes.pointwise_rate",
        SOURCE,
        "von Neumann acceptance rejection, variants",
        "acceptance is ∫ f/c",
        "how often such a proposal passes",
        check=pointwise_acceptance,
    ),
    Claim(
        "notes.squeezing",
        SOURCE,
        "von Neumann acceptance rejection, variants",
        "early-accept if U ≤ h(Y)/(M g(Y))",
        "a lower bound may accept early",
        check=squeezing,
    ),
    Claim(
        "notes.operations_grow",
        SOURCE,
        "tl/dr",
        "at the cost of increasing ops, with γ=5",
        "speculation costs operations",
        check=more_operations,
    ),
    Claim(
        "notes.limited",
        SOURCE,
        "tl/dr",
        "not useful when computation resources are limited",
        "no gain where operations are what takes time",
        check=useless_without_resources,
    ),
    Claim(
        "notes.non_iterative",
        SOURCE,
        "footnote on rejection sampling",
        "otherwise sample an unmodified p(x) directly",
        "one attempt of rejection sampling, then p, is exact",
        check=non_iterative_is_right,
    ),
    Claim(
        "notes.non_iterative_rate",
        SOURCE,
        "footnote on rejection sampling",
        "Σ p(x) min q(x')/p(x') ≤ Σ min(p(x), q(x))",
        "and accepts less often",
        check=non_iterative_accepts_less,
    ),
    Claim(
        "notes.greedy_lenience",
        SOURCE,
        "footnote on greedy decoding",
        "p(x) ≤ l · max(p)",
        "which drafts to accept at temperature 0",
        check=greedy_lenience_sign,
    ),
    Claim(
        "notes.lenience_no_op",
        SOURCE,
        "footnote on lenience",
        "scaling l q(x) becomes a no-op",
        "lenience does nothing to one-hot rows",
        check=lenience_at_zero_temperature,
    ),
    Claim(
        "notes.lenience_forms",
        SOURCE,
        "footnote on lenience",
        "α = … = Σ min(p(x)/l, q(x))",
        "five lines of equations",
        check=lenience_forms,
    ),
    Claim(
        "notes.lenience_range",
        SOURCE,
        "footnote on lenience",
        "l ∈ [0,1]",
        "the range of the lenience",
        check=lenience_zero,
    ),
    Claim(
        "notes.lenience_raises",
        SOURCE,
        "footnote on lenience",
        "l increases α",
        "α grows with l",
        check=lenience_raises_alpha,
    ),
    Claim(
        "notes.keep_reject",
        SOURCE,
        "goal and algorithm",
        "Keep when q(x) ≤ p(x); reject … with P = 1 - p(x)/q(x)",
        "both lines together are the rule, at q = p too",
        check=keep_and_reject,
    ),
    Claim(
        "notes.strict",
        SOURCE,
        "Algorithm 1",
        "r_i > p_i(x)/q_i(x)",
        "when a guess is rejected",
        check=strict_or_not,
    ),
    Claim(
        "notes.correct",
        SOURCE,
        "On Correctness of Speculative Sampling",
        "P(x = x') = p(x')",
        "speculative sampling is lossless",
        check=identically_distributed,
    ),
    Claim(
        "notes.normaliser",
        SOURCE,
        "On Correctness of Speculative Sampling",
        "the normalising constant … is 1 - β",
        "the mass of (p - q)₊",
        check=normaliser,
    ),
    Claim(
        "notes.geometric",
        SOURCE,
        "acceptance probability",
        "success probability of 1 - α and cap γ + 1",
        "the law of the tokens of a step",
        check=capped_geometric,
    ),
    Claim(
        "notes.expected",
        SOURCE,
        "acceptance probability",
        "α = E(β); (1 - α^{γ+1})/(1 - α)",
        "expected tokens from the mean of β",
        check=mean_of_beta,
    ),
    Claim(
        "notes.lemma_3_3",
        SOURCE,
        "Lemma 3.3",
        "D_LK(p,q) = 1 - Σ min(p(x), q(x))",
        "the natural divergence",
        check=natural_divergence,
    ),
    Claim(
        "notes.corollary_3_4",
        SOURCE,
        "Corollary 3.4",
        "symmetric divergence in [0,1]",
        "and when it is 0 or 1",
        check=divergence_is_one,
    ),
    Claim(
        "notes.theorem_3_5",
        SOURCE,
        "Theorem 3.5",
        "β = 1 - D_LK(p,q)",
        "the probability of acceptance",
        check=acceptance,
    ),
    Claim(
        "notes.theorem_3_8",
        SOURCE,
        "Theorem 3.8",
        "(1 - α^{γ+1})/((1 - α)(γ c + 1))",
        "the improvement in wall time",
        check=wall_time,
    ),
    Claim(
        "notes.c_near_zero",
        SOURCE,
        "wall-time improvement",
        "From the paper, c ≈ 0",
        "drafts cost next to nothing",
        needs="the paper's models on its accelerators",
    ),
    Claim(
        "notes.corollary_3_9",
        SOURCE,
        "Corollary 3.9",
        "(1 + α)/(1 + c)",
        "some γ gains that much whenever α > c",
        check=improvement_exists,
    ),
    Claim(
        "notes.smaller_gamma",
        SOURCE,
        "Corollary 3.9",
        "improvement for any 0 < γ* < γ",
        "whoever gains with γ gains with less",
        check=smaller_gamma_gains,
    ),
    Claim(
        "notes.theorem_3_11",
        SOURCE,
        "Theorem 3.11",
        "(1 - α)(γ ĉ + γ + 1)/(1 - α^{γ+1})",
        "the factor in arithmetic operations",
        check=operations,
    ),
]
