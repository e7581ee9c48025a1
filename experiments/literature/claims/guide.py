"""A long guide with a proof, code, the printed output of a run, a speed formula and rules of thumb."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from experiments.literature.claims.claim import Document, Finding, decide, only_if
from experiments.literature.claims.laws import (
    DRAFT,
    TARGET,
    Row,
    fractions,
    ngram_rows,
    overlap,
    pairs,
    row,
    standard_test,
    step,
)
from experiments.literature.claims.speed import (
    accepted_share,
    alpha_of_share,
    best_speed,
    root,
    speed,
    speed_of_share,
)
from specsim.core.distributions import temperature
from specsim.models import TableModel
from specsim.theory import accepted_law, expected_tokens, operations_factor, optimal_gamma
from specsim.theory._enumeration import prove

__all__ = ["DOCUMENT"]

DOCUMENT = Document(
    title="Guide to accelerating LLM inference (untitled)",
    source=(
        "Its first sentence calls it a guide to accelerating large language model inference through "
        "speculative decoding. It gives no title, date or address; its code names “Educational AI "
        "Implementation” as the author."
    ),
    listed=133,
    another_subject=33,
    repeated=48,
    unmeasured=8,
)


# --- correctness -----------------------------------------------------------------------------------------


@DOCUMENT.claim(
    "guide.exact",
    where="5, Theorem; 9, Misconception Two",
    quote="P(output x) = p(x)",
    correct="The output of the standard rule has exactly the target's law.",
)
def exact(rule: str = "standard", gamma: int = 4) -> Finding:
    found = max(prove(TARGET, DRAFT, rule=rule, gamma=gamma, context=(x,)).tv for x in range(3))
    return decide(found == 0, f"TV = {found} after {gamma} drafted tokens, in each of 3 contexts.")


@DOCUMENT.claim(
    "guide.likelier",
    where="5, The Acceptance Probability Formula",
    quote="tokens with high target probability are more likely to be accepted",
    correct="Acceptance depends on p/q, not on p: a likelier token can be accepted less often.",
)
def likelier_is_accepted(q: tuple[int, ...] = (8, 1, 1)) -> Finding:
    p = fractions(6, 1, 3)
    rates = [standard_test(p, fractions(*q), x) for x in range(3)]
    shown = ", ".join(
        f"{float(rate):.2f} for p = {float(a)}, q = {float(b)}"
        for rate, a, b in zip(rates, p, fractions(*q), strict=True)
    )
    return decide(
        all(rates[x] >= rates[y] for x in range(3) for y in range(3) if p[x] > p[y]),
        f"The acceptance probability is {shown}.",
    )


@DOCUMENT.claim(
    "guide.others",
    where="5, Proof, Case 2",
    quote="The sum Σ_{y≠x} q(y) × (1 - min(1, p(y)/q(y))) is the total rejection probability",
    correct="Only if p(x) ≥ q(x). Otherwise the sum lacks q(x) - p(x); the proof holds all the same, because "
    "then p'(x) = 0.",
)
def sum_over_others() -> Finding:
    cases = [(p, q, x) for p, q in pairs() for x in range(3) if p != q]
    there: list[bool] = []
    elsewhere: list[bool] = []
    result = 0
    for p, q, x in cases:
        z = 1 - overlap(p, q)
        others = sum((max(q[y] - p[y], Fraction(0)) for y in range(3) if y != x), Fraction(0))
        (there if p[x] >= q[x] else elsewhere).append(others == z)
        gain = max(p[x] - q[x], Fraction(0))
        result += gain / z * others == gain
    return only_if(
        all(there),
        all(elsewhere),
        f"The sum is the rejection probability in {sum(there)} of {len(there)} cases with p(x) ≥ q(x) and in "
        f"{sum(elsewhere)} of {len(elsewhere)} others; the product with p'(x) is right in {result} of "
        f"{len(cases)}.",
    )


@DOCUMENT.claim(
    "guide.other_tokens",
    where="4, What Happens",
    quote="fundamentally breaks the algorithm and produces incorrect results",
    correct="If ids mean other texts to the draft, it is a bad draft: acceptance falls, and the output keeps "
    "the target's law.",
)
def other_tokens() -> Finding:
    """A draft whose ids mean something else: its rows permuted, and its context read through the
    permutation.
    """
    order = (1, 2, 0)
    rows = [[row(DRAFT, [order[x]])[order[y]] for y in range(3)] for x in range(3)]
    found = step(TARGET, TableModel(rows))
    p, q = ngram_rows()
    wrong = q[:, np.random.default_rng(0).permutation(q.shape[1])]
    own, exchanged = (float(np.minimum(p, draft).sum(axis=1).mean()) for draft in (q, wrong))
    return decide(
        found.tv > 0,
        f"TV = {found.tv} for a draft with permuted ids; on the n-gram pair permuted ids lower α from "
        f"{own:.3f} to {exchanged:.3f}.",
    )


@DOCUMENT.claim(
    "guide.other_vocabulary",
    where="4, First requirement",
    quote="Both models must have exactly the same number of tokens",
    correct="A draft with a smaller vocabulary is correct if its rows are padded with zeros.",
)
def other_vocabulary() -> Finding:
    """A draft that knows two of the target's three tokens."""
    smaller = TableModel([fractions(1, 2, 0), fractions(2, 1, 0), fractions(1, 1, 0)])
    found = step(TARGET, smaller)
    return decide(
        found.tv > 0,
        f"TV = {found.tv} for a draft over 2 of the target's 3 tokens, with {float(found.tokens):.3f} tokens "
        "a step of 2.",
    )


@DOCUMENT.claim(
    "guide.temperatures",
    where="9, Pitfall Two",
    quote="If you apply temperature inconsistently, the mathematical correctness guarantee is violated",
    correct="Only if the test uses another row than the one drawn from. Draft and target may have different "
    "temperatures.",
)
def unequal_temperatures(t: int = 2) -> Finding:
    """Rows of target and draft ∝ w² and w: the second is the first at temperature 2."""

    def cold(pmf: Row) -> list[Fraction]:
        weights = [weight**t for weight in pmf]
        return [weight / sum(weights) for weight in weights]

    target = TableModel([cold(row(TARGET, [x])) for x in range(3)])
    drawn = step(target, DRAFT).tv
    believed = step(target, DRAFT, believed=TableModel([cold(row(DRAFT, [x])) for x in range(3)])).tv
    return only_if(
        believed > 0,
        drawn > 0,
        f"With the target at half the draft's temperature TV = {drawn} if q is the row that was drawn from, "
        f"{float(believed):.3f} if q is taken at the target's temperature.",
    )


def one_too_many(alpha: float, length: int = 30, k: int = 4) -> float:
    """How often a text has one token more than asked for: min(K, remaining) drafts, and a bonus if all
    pass.
    """
    over = [0.0] * (length + 1)
    for remaining in range(1, length + 1):
        drafted = min(k, remaining)
        over[remaining] = sum(
            weight * (1.0 if n + 1 > remaining else over[remaining - n - 1])
            for n, weight in enumerate(accepted_law(alpha, drafted))
        )
    return over[length]


@DOCUMENT.claim(
    "guide.edges",
    where="6, end of the code",
    quote="Properly handles all edge cases",
    correct="The code can emit one token too many, and misses an end-of-text token that is accepted within a "
    "draft.",
)
def edge_cases(k: int = 3, alpha: float = 0.75) -> Finding:
    eos = 2
    missed = [
        sum((mass for emitted, mass in law.items() if eos in emitted[:-1]), Fraction(0))
        for law in step(TARGET, DRAFT, gamma=k).laws.values()
    ]
    over = one_too_many(alpha)
    return decide(
        max(missed) == 0 and over == 0,
        f"A text of 30 tokens is one too long with probability {over:.3f} (α = {alpha}, K = 4); on the small "
        f"pair {float(min(missed)):.0%} to {float(max(missed)):.0%} of the steps of {k} drafts hide an "
        "end-of-text token.",
    )


@DOCUMENT.claim(
    "guide.temperature",
    where="9, Misconception Three",
    quote="there is no systematic relationship",
    correct="At one high temperature for both models acceptance rises to 1, because both rows become "
    "uniform.",
)
def temperature_has_no_effect(
    temperatures: tuple[float, ...] = (0.0, 0.5, 1.0, 2.0, 5.0), slight: float = 0.05
) -> Finding:
    """Whether α stays within `slight`."""
    p, q = ngram_rows()
    alphas = {
        t: float(np.minimum(temperature(p, t), temperature(q, t)).sum(axis=1).mean()) for t in temperatures
    }
    shown = ", ".join(f"{alpha:.3f} at {t:g}" for t, alpha in alphas.items())
    return decide(max(alphas.values()) - min(alphas.values()) < slight, f"On the n-gram pair α is {shown}.")


# --- the printed run -------------------------------------------------------------------------------------
# The loop of the guide drafts min(K, remaining) tokens, and emits the accepted ones and one more. So the
# number of tokens is that of accepted tokens and iterations together. A step that accepts everything makes a
# second target pass for its bonus.


class Printed(NamedTuple):
    """The numbers of the run, as printed; times in milliseconds."""

    tokens: int = 30
    iterations: int = 7
    accepted: int = 20
    bonus: int = 2
    k: int = 4
    draft_ms: float = 267.8
    target_ms: float = 923.5
    #: The three iterations that are shown: tokens before it, drafted, accepted.
    first: tuple[int, int, int] = (8, 4, 2)
    second: tuple[int, int, int] = (11, 4, 4)
    last: tuple[int, int, int] = (36, 2, 2)


RUN = Printed()
TRACE = "7, execution trace"


@DOCUMENT.claim(
    "run.tokens",
    where=TRACE,
    quote="tokens_generated: 30 … num_iterations: 7 … total_accepted: 20",
    correct="Each iteration emits its accepted tokens and one more, so tokens = accepted + iterations.",
)
def counts(run: Printed = RUN) -> Finding:
    total = run.accepted + run.iterations
    return decide(
        total == run.tokens,
        f"{run.accepted} accepted tokens and {run.iterations} iterations make {total} tokens; {run.tokens} "
        "are printed.",
    )


@DOCUMENT.claim(
    "run.bonus",
    where=TRACE,
    quote="total_bonus: 2",
    correct="The iterations that are not shown need more bonus tokens to emit what lies between those that "
    "are.",
)
def bonus(run: Printed = RUN) -> Finding:
    """The fewest bonus tokens with which the hidden iterations emit what they must."""
    steps = (run.first, run.second, run.last)
    shown = sum(accepted == drafted for _, drafted, accepted in steps)
    hidden = run.iterations - len(steps)
    emitted = run.last[0] - (run.second[0] + run.second[2] + 1)
    fewest = max(0, emitted - hidden * run.k)
    return decide(
        run.bonus == shown + fewest,
        f"{shown} of the {len(steps)} iterations shown have a bonus token; {hidden} others emit {emitted} "
        f"tokens, so at least {fewest} of them have one: {shown + fewest} in all.",
    )


@DOCUMENT.claim(
    "run.rejected",
    where=TRACE,
    quote="Drafted: 4 … Accepted: 2 … Rejected: 2",
    correct="One token was rejected; the token behind it was never tested.",
)
def rejected(printed: int = 2, run: Printed = RUN) -> Finding:
    _, proposed, passed = run.first
    tested = min(proposed, passed + 1)
    return decide(
        tested - passed == printed,
        f"{tested} of {proposed} tokens were tested and {tested - passed} rejected: α is "
        f"{passed / tested:.3f} per tested token, not {passed / proposed:.3f}.",
    )


@DOCUMENT.claim(
    "run.estimated",
    where=TRACE,
    quote="estimated_speedup: 2.47x",
    correct="The estimator of the guide's code gives another number for the printed times.",
)
def estimated(printed: str = "2.47", run: Printed = RUN) -> Finding:
    """tokens · (target time / iterations) / (draft time + target time)."""
    value = run.tokens * run.target_ms / run.iterations / (run.draft_ms + run.target_ms)
    return decide(
        f"{value:.2f}" == printed,
        f"{run.tokens} tokens, {run.iterations} iterations and the printed times give {value:.2f}.",
    )


DOCUMENT.not_checkable(
    "run.speed",
    where=TRACE,
    quote="Actual Speedup: 2.47x",
    needs="GPT-2 Large and DistilGPT-2, timed on the GPU of the run, which is not named",
)


# --- the speed formula -----------------------------------------------------------------------------------

FORMULA = "8, The Speedup Formula Explained"


def guide_speed(alpha: float, k: int, r: float, beta: float | None = None) -> float:
    """(αK + β)/(Kr + 1), with β = α^K unless given."""
    return (alpha * k + (alpha**k if beta is None else beta)) / (k * r + 1)


@DOCUMENT.claim(
    "speed.formula",
    where=FORMULA,
    quote="Speedup = (α × K + β) / (K × r + 1)",
    correct="A step that rejects emits a token too: the numerator is αK + 1 if α is accepted / drafted, and "
    "(1 - α^{K+1})/(1 - α) if α is per tested token.",
)
def formula(
    alpha: float = 0.75,
    k: int = 4,
    r: float = 0.1,
    printed: Callable[[float, int, float, float], float] = guide_speed,
) -> Finding:
    """Both readings of α, for α from 0.05 to 0.95; β is the chance that all pass."""
    alphas = np.linspace(0.05, 0.95, 19)
    tested = [printed(a, k, r, a**k) / speed(a, k, r) - 1 for a in alphas]
    shares = [accepted_share(a, k) for a in alphas]
    drafted = [
        printed(share, k, r, a**k) / speed_of_share(share, k, r) - 1
        for a, share in zip(alphas, shares, strict=True)
    ]
    return decide(
        max(map(abs, tested)) < 1e-9 or max(map(abs, drafted)) < 1e-9,
        f"{printed(alpha, k, r, alpha**k):.3f} at α = {alpha}, K = {k}, r = {r}; correct is "
        f"{speed_of_share(alpha, k, r):.3f} if α is accepted / drafted, {speed(alpha, k, r):.3f} if it is "
        f"per tested token. The formula is off by {min(drafted):+.0%} to {max(drafted):+.0%} in the first "
        f"reading, {min(tested):+.0%} to {max(tested):+.0%} in the second.",
    )


@DOCUMENT.claim(
    "speed.beta",
    where=FORMULA,
    quote="approximately 1 - (1-α)^K for large K, or simply the fraction of iterations where all K … "
    "accepted",
    correct="The two differ: the first is the chance that at least one of K passes, the second is α^K.",
)
def beta_for_large_k(alpha: float = 0.75, ks: tuple[int, ...] = (4, 8, 16)) -> Finding:
    both = {k: (1 - (1 - alpha) ** k, alpha**k) for k in ks}
    shown = ", ".join(f"{one:.4f} and {every:.4f} at K = {k}" for k, (one, every) in both.items())
    return decide(
        all(abs(one - every) < 0.05 for one, every in both.values()), f"With α = {alpha} they are {shown}."
    )


@DOCUMENT.claim(
    "speed.bonus_pass",
    where="5, The Bonus Token; 6, code",
    quote="improves efficiency without any additional cost",
    correct="The code makes a target pass of its own for the bonus, which costs more than the bonus gains.",
)
def bonus_pass(alpha: float = 0.75, k: int = 4, r: float = 0.1, passes: int = 1) -> Finding:
    """The bonus from the last row of the pass, from `passes` more of its own, and not at all."""
    tokens, every = float(expected_tokens(alpha, k)), alpha**k
    free, paid = tokens / (k * r + 1), tokens / (k * r + 1 + passes * every)
    none = (tokens - every) / (k * r + 1)
    return decide(
        paid == free,
        f"{paid:.3f} times as fast with the second pass, {free:.3f} without it, {none:.3f} without any bonus "
        f"(α = {alpha}, K = {k}, r = {r}).",
    )


@DOCUMENT.claim(
    "speed.third",
    where="10, Bonus tokens rarely sampled",
    quote="(0.75)^4 = 0.316 … bonus tokens in roughly one-third of iterations",
    correct="Only if 75% is the share of tested tokens. The guide defines its rate as accepted / drafted, "
    "which implies more.",
)
def bonus_in_a_third(share: float = 0.75, k: int = 4) -> Finding:
    alpha = alpha_of_share(share, k)
    return only_if(
        abs(share**k - 1 / 3) < 0.05,
        abs(alpha**k - 1 / 3) < 0.05,
        f"α = {share} gives a bonus in {share**k:.3f} of the steps; accepted / drafted = {share} means α = "
        f"{alpha:.3f}, and a bonus in {alpha**k:.3f}.",
    )


@DOCUMENT.claim(
    "speed.break_even",
    where="8, Break-Even Analysis",
    quote="α > r + 1/K … the minimum acceptance rate needed for any speedup … = 0.35",
    correct="At K drafts a gain begins at α > r if α is accepted / drafted; with the best K it begins at α > "
    "r in either reading.",
)
def break_even(printed: float = 0.35, r: float = 0.1, k: int = 4) -> Finding:
    """Whether nothing is gained just below the printed rate."""
    below = printed - 0.01
    begins = root(lambda alpha: speed(alpha, k, r) - 1.0, 0.0, 1.0)
    return decide(
        max(speed(below, k, r), speed_of_share(below, k, r)) <= 1,
        f"With r = {r} and K = {k} a gain begins at accepted / drafted = {r}, or α = {begins:.3f} per tested "
        f"token; at α = {printed} the best K is {best_speed(printed, r):.3f} times as fast.",
    )


@DOCUMENT.claim(
    "speed.five_times",
    where="9, Misconception Five",
    quote="speedup only when … the draft model must be significantly faster … (at least five times)",
    correct="A draft that is twice as fast gains if α > 1/2: any α > r gains with the best K.",
)
def five_times_faster(alpha: float = 0.8, slow: tuple[int, ...] = (2, 3)) -> Finding:
    speeds = {times: best_speed(alpha, 1 / times) for times in (*slow, 5, 10)}
    shown = ", ".join(f"{value:.2f} for one {times} times as fast" for times, value in speeds.items())
    return decide(
        all(speeds[times] <= 1 for times in slow), f"At α = {alpha} the speed with a draft is {shown}."
    )


@DOCUMENT.claim(
    "speed.k_6_8",
    where="8, Optimal K Selection",
    quote="If your acceptance rate is above eighty percent, use K = 6 to 8",
    correct="Only for one range of r. The best K depends on the draft's cost as much as on the acceptance "
    "rate.",
)
def six_to_eight(
    low: float = 0.8, high: float = 0.95, ks: tuple[int, int] = (6, 8), share: float = 0.95
) -> Finding:
    """Whether some recommended K keeps that share of the best speed, at each α of the band, for each cost."""
    kept = {
        r: min(
            max(speed(a, k, r) for k in range(ks[0], ks[1] + 1)) / best_speed(a, r)
            for a in np.linspace(low, high, 9).tolist()
        )
        for r in (0.02, 0.05, 0.1, 0.2)
    }
    shown = ", ".join(
        f"{value:.0%} at r = {r} (best K {optimal_gamma(low, r)} to {optimal_gamma(high, r)})"
        for r, value in kept.items()
    )
    return only_if(
        max(kept.values()) >= share,
        min(kept.values()) >= share,
        f"For α from {low} to {high} one of these K keeps at least {shown} of the best speed.",
    )


@DOCUMENT.claim(
    "speed.later",
    where="10, Very low acceptance rate",
    quote="later tokens … are more likely to be rejected because errors accumulate",
    correct="Only if tokens that were never tested count as rejected. This happens without any accumulation "
    "of errors.",
)
def later_tokens(alpha: float = 0.75, k: int = 8) -> Finding:
    """Acceptance by position: of all drafted tokens, and of those that were tested."""
    reached = np.cumsum(accepted_law(alpha, k)[::-1])[::-1]
    tested = reached[1:] / reached[:-1]
    return only_if(
        reached[k] < reached[1],
        bool(tested.min() < tested.max() - 1e-9),
        f"With α = {alpha} for every tested token the first of {k} is accepted with probability "
        f"{reached[1]:.3f} and the last with {reached[k]:.3f}, but with {tested[-1]:.3f} once it is tested.",
    )


@DOCUMENT.claim(
    "guide.downsides",
    where="1, The Promise",
    quote="no downsides except implementation complexity",
    correct="Speculative decoding costs arithmetic operations and memory, and is slower if acceptance is "
    "low.",
)
def no_downsides(k: int = 4) -> Finding:
    factors = {alpha: float(operations_factor(alpha, k, 0.1)) for alpha in (0.5, 0.75, 0.95)}
    slow = speed(0.3, k, 0.2)
    shown = ", ".join(f"{factor:.2f} at α = {alpha}" for alpha, factor in factors.items())
    return decide(
        max(factors.values()) <= 1 and slow >= 1,
        f"The operations grow by a factor of {shown} (K = {k}, ĉ = 0.1); the speed is {slow:.2f} at α = 0.3, "
        "r = 0.2.",
    )


@DOCUMENT.claim(
    "speed.table",
    where="8, Empirical Performance Data",
    quote="r 0.12 … acceptance rate: 0.70 to 0.80 … Observed speedup: 2.3x to 2.8x … K: 4 to 6",
    correct="The printed speed fits the printed rates in neither reading of the acceptance rate.",
)
def table_row(
    r: str = "0.12",
    alphas: tuple[float, float] = (0.70, 0.80),
    ks: tuple[int, int] = (4, 6),
    printed: tuple[float, float] = (2.3, 2.8),
) -> Finding:
    """Speeds at the ends of the printed ranges, with r within its rounding."""
    half = 0.5 * 10.0 ** -len(r.partition(".")[2])
    grid = [
        (alpha, k, cost)
        for alpha in alphas
        for k in range(ks[0], ks[1] + 1)
        for cost in (float(r) - half, float(r) + half)
    ]
    tested = sorted(speed(*point) for point in grid)
    drafted = sorted(speed_of_share(*point) for point in grid)
    return decide(
        any(speeds[0] <= printed[0] and printed[1] <= speeds[-1] for speeds in (tested, drafted)),
        f"{tested[0]:.2f} to {tested[-1]:.2f} if the rate is per tested token, {drafted[0]:.2f} to "
        f"{drafted[-1]:.2f} if it is accepted / drafted.",
    )
