"""Statements that explanations of speculative decoding make, each checked by a program.

Kept are those about verification, drafting and their speed that teach something; claims that are wrong or
need a condition were preferred, so that the counts are no error rates. A check about a distribution
enumerates it in exact fractions, one about speed uses the closed forms of `specsim.theory`, and some measure
the n-gram pair of models. Nothing is random.

A claim is a function with the decorator `claim`. Its docstring is the correct statement, which begins with
"Only" where the claim needs a condition that its document does not state. Numbers that a document prints are
default arguments, so that a test can give others.
"""

import inspect
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import cache
from itertools import product
from typing import Any, NamedTuple, TypeVar

import numpy as np

from experiments import Progress
from experiments._pages import joined, markdown_table
from experiments.literature.published.values import ALPHAS, FIGURES
from specsim import default_pair, prove, speculative_accept, theory
from specsim.distributions import temperature
from specsim.models import Model, TableModel, branching
from specsim.models._session import Session
from specsim.planning import Hardware, Network, Roofline
from specsim.rules._common.tokenwise import positive_part
from specsim.theory._enumeration import Law, Tokens, continued_law

TITLE = "Claims about speculative decoding, checked"

EXERCISE, REFERENCE = "Speculative decoding verification", "naive_speculate.speculate"
NOTES, GUIDE = "Speculative decoding (aarnphm.xyz)", "Guide to accelerating LLM inference (untitled)"
ARTICLE = "Speculative Decoding: Exact Speedups with Draft Models"
#: Where each document is found.
SOURCES = {
    EXERCISE: "A programming exercise without an address.",
    REFERENCE: "The API reference of a Python package, without an address.",
    NOTES: "Notes at <https://aarnphm.xyz/thoughts/Speculative-decoding>, modified 2026-06-05.",
    ARTICLE: "An article by Ran Ding, 2025, without an address.",
    GUIDE: "A guide without an address.",
}
VERDICTS = RIGHT, CONDITIONAL, WRONG = "right", "right with a condition", "wrong"


class Finding(NamedTuple):
    """The verdict of a check, and a sentence with the numbers that it computed."""

    verdict: str
    found: str


Check = TypeVar("Check", bound=Callable[..., Finding])


class Claim(NamedTuple):
    """A statement of a document, as printed and shortened, and the check that computes its verdict."""

    document: str
    where: str
    quote: str
    check: Callable[[], Finding]


#: All claims by name, in the order of the page.
CLAIMS: dict[str, Claim] = {}


def claim(document: str, where: str, quote: str) -> Callable[[Check], Check]:
    """Decorate the check of a claim."""

    def add(check: Check) -> Check:
        CLAIMS[check.__name__] = Claim(document, where, quote, check)
        return check

    return add


def decide(holds: bool | np.bool_, found: str) -> Finding:
    """Return the finding for a claim that holds or does not."""
    return Finding(RIGHT if holds else WRONG, found)


def only_if(there: bool | np.bool_, elsewhere: bool | np.bool_, found: str) -> Finding:
    """Return the finding for a claim that holds under a condition (`there`), and without it (`elsewhere`) or
    not."""
    return Finding((RIGHT if elsewhere else CONDITIONAL) if there else WRONG, found)


def listed(numbers: dict[float, float], form: str, at: str) -> str:
    """Format numbers as "0.50 at K = 1, 0.60 at K = 2"."""
    return ", ".join(f"{value:{form}}{at}{key:g}" for key, value in numbers.items())


# --- distributions in fractions --------------------------------------------------------------------------

Row = Sequence[Fraction]
#: The row after a context and the tokens drafted since.
Rows = Callable[[Tokens, Tokens], Row]


def fractions(*weights: int) -> list[Fraction]:
    """Return a pmf in proportion to whole numbers."""
    return [Fraction(weight, sum(weights)) for weight in weights]


def row(model: Model, context: Sequence[int]) -> list[Fraction]:
    """Return the row of an exact model after `context`."""
    return [Fraction(weight) for weight in model.row(context)]


#: A pair of rows, and a pair of models with a row after each token.
P, Q = fractions(3, 2, 1), fractions(1, 2, 3)
TARGET = TableModel([P, fractions(1, 3, 2), fractions(2, 1, 2)])
DRAFT = TableModel([Q, fractions(2, 1, 1), fractions(1, 2, 2)])


def certain(pmf: Row) -> list[Fraction]:
    """Return the row with all mass on the most probable token, the first among ties."""
    return [Fraction(x == list(pmf).index(max(pmf))) for x in range(len(pmf))]


GREEDY_TARGET, GREEDY_DRAFT = (
    TableModel([certain(row(model, [x])) for x in range(3)]) for model in (TARGET, DRAFT)
)


def pairs(parts: int = 4) -> Iterator[tuple[Row, Row]]:
    """All pairs of pmfs over three tokens in multiples of 1/`parts`: with zeros, ties, equal and disjoint."""
    rows = [fractions(*cell) for cell in product(range(parts + 1), repeat=3) if sum(cell) == parts]
    return ((p, q) for p in rows for q in rows)


def overlap(p: Row, q: Row) -> Fraction:
    """Σ min(p, q)."""
    return sum(map(min, p, q), Fraction(0))


def distance(one: Row, other: Row) -> Fraction:
    """Return the total variation of two rows."""
    return sum((abs(a - b) for a, b in zip(one, other, strict=True)), Fraction(0)) / 2


def law_distance(one: Law, other: Law) -> Fraction:
    """Return the total variation of two distributions."""
    keys = sorted(one.keys() | other.keys())
    return distance(*([law.get(key, Fraction(0)) for key in keys] for law in (one, other)))


@cache
def ngram_rows(contexts: int = 1024) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the n-gram target and draft after the first `contexts` contexts of the target."""
    target, draft = default_pair()
    chosen = target.contexts[:contexts]
    return target.rows(chosen), draft.rows(chosen)


def ngram_alpha(p: np.ndarray, q: np.ndarray) -> float:
    """The mean of Σ min(p, q)."""
    return float(np.minimum(p, q).sum(axis=1).mean())


class Step(NamedTuple):
    """The largest total variation from the target's distribution over all contexts, and the mean tokens a
    step."""

    tv: Fraction
    tokens: Fraction


def standard_test(p: Row, q: Row, x: int) -> Fraction:
    """min(1, p/q); 1 if the test assumes that x cannot be drafted."""
    return min(Fraction(1), p[x] / q[x]) if q[x] else Fraction(1)


def step(
    target: Model,
    draft: Model | Rows,
    *,
    gamma: int = 2,
    believed: Model | Rows | None = None,
    accept: Callable[[Row, Row, int], Fraction] = standard_test,
    recovered: Callable[[Row, Row], Row] = positive_part,
    stops: bool = True,
) -> Step:
    """Enumerate a step of `gamma` tokens from `draft`, tested against `believed`, by default `draft` too.

    accept(p, q, x) is the probability of accepting x; recovered(p, q) the distribution of the token after a
    rejection, where the step stops unless `stops` is false. The bonus comes from the target.
    """
    drawn, tested = _rows(draft), _rows(draft if believed is None else believed)
    order = max([target.order] + [m.order for m in (draft, believed) if isinstance(m, Model)])
    distances, tokens = [], Fraction(0)
    for context in product(range(target.vocab_size), repeat=order):
        law: Law = defaultdict(Fraction)
        for path in product(range(target.vocab_size), repeat=gamma):
            probability = Fraction(1)
            for i, x in enumerate(path):
                probability *= drawn(context, path[:i])[x]
            going: Law = {(): probability} if probability else {}
            for i, x in enumerate(path):
                p, q = row(target, (*context, *path[:i])), tested(context, path[:i])
                passed, before, going = accept(p, q, x), going, defaultdict(Fraction)
                for emitted, mass in before.items():
                    going[(*emitted, x)] += mass * passed
                    for token, weight in enumerate(recovered(p, q) if passed < 1 else ()):
                        (law if stops else going)[(*emitted, token)] += mass * (1 - passed) * weight
            for emitted, mass in going.items():
                for token, weight in enumerate(row(target, (*context, *path))):
                    law[(*emitted, token)] += mass * weight
        known = {emitted: mass for emitted, mass in law.items() if mass}
        own = theory.target_law(target, gamma + 1, context)
        distances.append(law_distance(continued_law(known, target, gamma + 1, context), own))
        tokens += sum((len(emitted) * mass for emitted, mass in known.items()), Fraction(0))
    return Step(max(distances), tokens / len(distances))


def _rows(source: Model | Rows) -> Rows:
    if isinstance(source, Model):
        model = source
        return lambda context, path: row(model, (*context, *path))
    return source


def proven(rule: str, target: Model = TARGET, draft: Model = DRAFT, **options: Any) -> Fraction:
    """Return the largest total variation of a rule of the package over the small pair's contexts."""
    return max(prove(target, draft, rule=rule, context=(x,), **options).tv for x in range(3))


# --- speed, for the two quantities that documents call the acceptance rate -------------------------------
# α is the probability that a token is accepted once it is tested; the share is accepted / drafted.


def speed(alpha: float, k: int, r: float) -> float:
    """How many times faster at α; r is the draft's time over the target's."""
    return float(theory.walltime_improvement(alpha, k, r))


def speed_of_share(share: float, k: int, r: float) -> float:
    """How many times faster at that share, whatever the dependence."""
    return (share * k + 1.0) / (k * r + 1.0)


def best_speed(alpha: float, r: float) -> float:
    """The speed with the best K."""
    return speed(alpha, int(theory.optimal_gamma(alpha, r)), r)


def root(function: Callable[[float], float], low: float = 0.0, high: float = 1.0 - 1e-6) -> float:
    """Return where a function that rises through 0 between `low` and `high` does so."""
    from scipy.optimize import brentq

    return float(brentq(function, low, high, xtol=1e-12))


#: A GPU as its data sheet has it (A100, 40 GB), and Llama 2 with 70 and with 7 billion parameters.
A100 = Hardware(1.555e12, 312e12)
LLAMA = (
    Network(70e9, cache_bytes_per_token=2 * 80 * 8 * 128 * 2),
    Network(7e9, cache_bytes_per_token=2 * 32 * 32 * 128 * 2),
)

# --- an exercise -----------------------------------------------------------------------------------------


@claim(EXERCISE, "Problem statement", "accept if r ≤ min(1, p/q) … uniform random numbers in [0, 1)")
def closed_test(bits: int = 24) -> Finding:
    """Only if r is never 0. With r in [0, 1) the test must be r < p/q, or p = 0 passes at r = 0."""
    at_zero, above = (speculative_accept([0], [[0.0, 1.0]], [[1.0, 0.0]], [r]) for r in (0.0, 2.0**-bits))
    return only_if(
        above == [],
        at_zero == [],
        f"For a token with p = 0 the test returns {at_zero} at r = 0 and {above} at r = 2^-{bits}: a "
        f"generator of {bits} bits lets it pass once in {2**bits:,} draws.",
    )


@claim(EXERCISE, "Background, Notes", "provably yields samples from the target distribution")
def lossless(recovered: Callable[[Row, Row], Row] = positive_part) -> Finding:
    """With a draw from (p - q)₊ after a rejection, as the notes of the page say. The accept test alone is not
    enough."""
    whole = step(TARGET, DRAFT, recovered=recovered).tv
    again = step(TARGET, DRAFT, recovered=lambda p, q: p).tv
    return decide(whole == 0, f"TV = {whole}; with p in place of (p - q)₊ TV = {float(again):.3f}.")


@claim(EXERCISE, "Notes", "expected number of accepted tokens … governs the wall-clock speed-up")
def acceptance_governs(alpha: float = 0.8, k: int = 5, costs: tuple[float, float] = (0.02, 0.6)) -> Finding:
    """Only together with the cost of drafting: the same acceptance gains with a cheap draft and loses with a
    dear one."""
    speeds = {r: speed(alpha, k, r) for r in costs}
    cheap, dear = speeds.values()
    found = f"With α = {alpha} and K = {k} the speed is {listed(speeds, '.2f', ' at r = ')}."
    return only_if(cheap > 1, dear > 1, found)


# --- a reference -----------------------------------------------------------------------------------------


@claim(REFERENCE, "decode", "GREEDY_MATCH … is legal to combine with any drafter sampling strategy")
def greedy_match() -> Finding:
    """Only for greedy decoding: greedy match emits the target's argmax, whatever is drafted."""
    greedy, sampled = proven("greedy_match", GREEDY_TARGET), proven("greedy_match")
    return only_if(
        greedy == 0,
        sampled == 0,
        f"TV = {greedy} from the target's argmax, {float(sampled):.3f} from the target's own distribution.",
    )


@claim(REFERENCE, "decode", "normally leads to more rejections, since it requires exact matches")
def more_rejections() -> Finding:
    """Only for sampled drafts. The text compares greedy drafts, which greedy match can accept more often."""
    p, q = ngram_rows()
    best = p.argmax(axis=1)
    standard, both = ngram_alpha(p, q), float((best == q.argmax(axis=1)).mean())
    sampled = float(np.take_along_axis(q, best[:, None], axis=1).mean())
    return only_if(
        sampled < standard,
        both < standard,
        f"On the n-gram pair speculative sampling accepts {standard:.3f} of the tokens, greedy match "
        f"{sampled:.3f} of sampled drafts and {both:.3f} of greedy drafts.",
    )


@claim(REFERENCE, "decode", "legal … as long as the sampling strategy defines a valid proposal distribution")
def any_strategy() -> Finding:
    """Speculative sampling is lossless for any drafting, if q is the row that the token was drawn from."""
    warm = TableModel([fractions(2, 3, 3), fractions(3, 2, 2), fractions(2, 3, 3)])
    cut = TableModel([fractions(0, 2, 3), fractions(2, 1, 0), fractions(0, 1, 1)])
    exact = max(step(TARGET, draft).tv for draft in (DRAFT, GREEDY_DRAFT, warm, cut))
    other = step(TARGET, cut, believed=DRAFT).tv
    return decide(
        exact == 0,
        f"TV = {exact} for sampled, greedy, warmer and top-2 drafts; {float(other):.3f} for top-2 drafts "
        "that are tested with the uncut rows.",
    )


@claim(REFERENCE, "decode, greedy drafts", "rejection always happens for each draft token")
def always_rejects(gamma: int = 3) -> Finding:
    """A greedy draft x has q(x) = 1, passes with probability p(x), and keeps the target's distribution."""
    p, q = ngram_rows()
    accepted = float(np.take_along_axis(p, q.argmax(axis=1)[:, None], axis=1).mean())
    found = step(TARGET, GREEDY_DRAFT, gamma=gamma)
    return decide(
        accepted == 0,
        f"{accepted:.3f} of the greedy drafts are accepted on the n-gram pair; on the small pair a step of "
        f"{gamma} emits {float(found.tokens):.3f} tokens, with TV = {found.tv}.",
    )


@claim(REFERENCE, "decode, caches", "may lead to wrong generation results or even errors")
def wrong_cache() -> Finding:
    """Only to errors, where the cache of the drafter is too short. Results keep the target's distribution
    whatever the drafter's cache holds; acceptance falls."""
    near = [fractions(5, 3, 1), fractions(1, 4, 2), fractions(3, 1, 2)]
    intact = step(TARGET, TableModel(near))
    stale = step(TARGET, TableModel([[near[before]] * 3 for before in range(3)]))  # lost the last token
    try:
        Session(TableModel([[near] * 3] * 3), [0]).advance([1])  # it reads three tokens, and has one
        error = ""
    except ValueError as raised:
        error = str(raised)
    return only_if(
        bool(error),
        stale.tv > 0,
        f"TV = {stale.tv} for a drafter that misses the last token; tokens a step fall from "
        f"{float(intact.tokens):.3f} to {float(stale.tokens):.3f}. A cache that is too short: “{error}”.",
    )


# --- notes -----------------------------------------------------------------------------------------------


@claim(NOTES, "opening quotation", "a single input token takes about as much time as … K input tokens")
def parallel(tokens: int = 1024) -> Finding:
    """Only up to the K at which a pass is no longer bound by reading weights."""
    cost = Roofline(LLAMA[0], LLAMA[1], A100)
    few, many = cost.step_of((), cost.free_tokens - 1), cost.step_of((), tokens - 1)
    return only_if(
        few < 1.01,
        many < 1.01,
        f"By a roofline of 70 billion parameters on an A100 {cost.free_tokens} tokens take {few:.2f} times "
        f"as long as one, {tokens:,} take {many:.2f} times.",
    )


@claim(NOTES, "EAGLE", "does not involve any fine-tuning of the target model, therefore … guaranteed")
def untouched_target() -> Finding:
    """Only if each child of the tree is tested with the distribution it was drawn from; an untouched target
    is not enough."""
    target, draft = TableModel(fractions(3, 2, 1)), TableModel(fractions(2, 1, 1))
    top = prove(target, draft, rule="deterministic_children", gamma=branching(2, 2, draft_sampling="top")).tv
    pruned = prove(target, draft, rule="pruned_children", gamma=branching(3)).tv
    return only_if(
        top == 0,
        pruned == 0,
        f"TV = {top} for the most probable children, tested as certain; {float(pruned):.3f} for sampled "
        "children that are pruned by probability.",
    )


@claim(NOTES, "EAGLE", "This [that the distribution is preserved] is not the case with … Medusa")
def medusa(rule: str = "typical") -> Finding:
    """Medusa's typical acceptance does not keep the target's distribution."""
    found = proven(rule)
    return decide(found > 0, f"TV = {float(found):.3f} on the small pair.")


@claim(NOTES, "EAGLE", "This [that the distribution is preserved] is not the case with Lookahead")
def lookahead(rule: str = "one_hot") -> Finding:
    """Lookahead decoding tests its guesses as certain drafts, greedily or by sampling, and keeps the
    distribution (arXiv 2402.02057)."""
    guess = TableModel([fractions(0, 1, 0), fractions(0, 0, 1), fractions(1, 0, 0)])
    kept = proven(rule, draft=guess)
    return decide(kept > 0, f"TV = {kept} for guesses that are tested as certain drafts.")


@claim(NOTES, "von Neumann acceptance rejection", "U ≤ f(Y)/(c(Y)g(Y)). Correctness is unchanged")
def pointwise_envelope(rule: str = "pointwise_envelope") -> Finding:
    """The envelope must be one constant. With c(x), accepted samples follow f/c, normalised."""
    found = proven(rule)
    law = ", ".join(str(min(a, b) / overlap(P, Q)) for a, b in zip(P, Q, strict=True))
    return decide(
        found == 0,
        f"With c = max(1, p/q) a step of 2 has TV = {float(found):.3f}; what passes has the "
        f"distribution ({law}) where ({', '.join(map(str, P))}) is wanted.",
    )


@claim(NOTES, "acceptance probability", "α = E(β) assuming β are i.i.d. … (1 - α^{γ+1})/(1 - α)")
def mean_of_beta(low: float = 0.3, high: float = 0.95, gamma: int = 5, extra: int = 0) -> Finding:
    """The formula needs that assumption: if the β of a step rise and fall together, it emits more tokens."""
    formula = float(theory.expected_tokens((low + high) / 2, gamma + extra))
    each = [float(theory.expected_tokens_by_position(betas)) for betas in product((low, high), repeat=gamma)]
    once = float(np.mean(theory.expected_tokens(np.array([low, high]), gamma)))
    return decide(
        np.isclose(np.mean(each), formula),
        f"With β = {low} or {high} and γ = {gamma} a step emits {np.mean(each):.2f} tokens if β is drawn for "
        f"each token, {once:.2f} if for the whole step; the formula at the mean gives {formula:.2f}.",
    )


@claim(NOTES, "footnote on greedy decoding", "accept token x … in case of p(x) ≤ l · max(p)")
def lenient_sign(sign: str = "≤", lenience: Fraction = Fraction(1, 2)) -> Finding:
    """The sign must be ≥: as printed the test keeps improbable tokens and rejects the argmax."""
    bound = lenience * max(P)
    kept = {x: (P[x] <= bound if sign == "≤" else P[x] >= bound) for x in range(3)}
    best, worst = P.index(max(P)), P.index(min(P))
    said = {x: "keeps" if kept[x] else "rejects" for x in (best, worst)}
    return decide(
        kept[best],
        f"At l = {lenience} the test {said[worst]} the least probable token (p = {P[worst]}) and "
        f"{said[best]} the argmax (p = {P[best]}).",
    )


LENIENCES = (Fraction(1), Fraction(1, 2), Fraction(3, 10), Fraction(1, 10))


@claim(NOTES, "footnote on lenience", "l increases α")
def lenience_raises(leniences: tuple[Fraction, ...] = LENIENCES[::-1]) -> Finding:
    """α rises as l falls."""
    rates = {float(lenience): float(overlap([a / lenience for a in P], Q)) for lenience in leniences}
    return decide([*rates.values()] == sorted(rates.values()), f"α is {listed(rates, '.3f', ' at l = ')}.")


# --- an article, whose letters are swapped: there q is the target and p the draft --------------------------


@claim(ARTICLE, "Minimal pseudocode", "a = min(1., ctx_prob_q[z] / max(ctx_prob_p[z], eps))")
def clamped(epsilons: tuple[Fraction, ...] = (Fraction(1, 100), Fraction(1, 10), Fraction(1, 2))) -> Finding:
    """Only if eps is below every probability that the draft draws."""
    draft, target = TableModel(fractions(20, 39, 1)), TableModel(fractions(20, 20, 20))

    def tv(eps: Fraction) -> Fraction:
        return step(target, draft, accept=lambda p, q, x: min(Fraction(1), p[x] / max(q[x], eps))).tv

    found = {float(eps): float(tv(eps)) for eps in epsilons}
    first, *_ = found.values()
    shown = f"TV = {listed(found, '.3f', ' at eps = ')}, for a draft of (20, 39, 1)/60."
    return only_if(first == 0, max(found.values()) == 0, shown)


@claim(ARTICLE, "Minimal pseudocode", "ctx_prob_p = p.prob(. | x[:n] + tilde[:t-1])")
def pseudocode(doubled: bool = True) -> Finding:
    """n has counted the accepted tokens already, so they appear twice in the draft's context; the row must be
    kept from drafting."""
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


@claim(ARTICLE, "Practical notes", "Stopping when you reject is crucial")
def stopping(target: Model = TARGET, draft: Model = DRAFT, gamma: int = 2) -> Finding:
    """Testing the tokens after a rejected one changes the distribution, unless no row depends on the
    context."""
    found = step(target, draft, gamma=gamma, stops=False).tv
    return decide(
        found > 0, f"TV = {float(found):.3f} for a step of {gamma} that continues after a rejection."
    )


@claim(ARTICLE, "Why this works", "often 70–95% in practice")
def rates(low: float = 0.7, high: float = 0.95) -> Finding:
    """Only for some pairs and texts."""
    known = [
        float(figure.printed)
        for figure in FIGURES
        if figure.where == ALPHAS and figure.quantity.startswith("α") and "gram" not in figure.quantity
    ]
    inside = sum(low <= alpha <= high for alpha in known)
    return only_if(
        inside > 0,
        inside > 0.9 * len(known),
        f"{inside} of {len(known)} rates of networks in Table 3 of Leviathan et al. are from {low} to "
        f"{high}; they are {min(known)} to {max(known)}.",
    )


@claim(ARTICLE, "Why this works", "2–4× wall-clock speedup")
def two_to_four(low: float = 2.0, high: float = 4.0, alphas: tuple[float, float] = (0.7, 0.95)) -> Finding:
    """Only for a band of α that depends on the draft's cost, not for all of the 70–95% that the article
    names."""
    speeds = {r: [best_speed(alpha, r) for alpha in alphas] for r in (0.02, 0.1, 0.2)}
    least, most = (root(lambda a, wanted=wanted: best_speed(a, 0.1) - wanted) for wanted in (2.0, 4.0))  # type: ignore[misc]
    inside = [low <= value <= high for pair in speeds.values() for value in pair]
    shown = ", ".join(f"{slow:.2f} to {fast:.2f} at r = {r}" for r, (slow, fast) in speeds.items())
    return only_if(
        any(inside),
        all(inside),
        f"For α from {alphas[0]} to {alphas[1]} and the best K the speed is {shown}; at r = 0.1 it takes α "
        f"from {least:.3f} to {most:.3f} to be 2 to 4 times as fast.",
    )


@claim(ARTICLE, "Why this works", "the accept/reject as a rejection-sampling / MH-style correction")
def like_a_chain(p: Row = P, q: Row = Q) -> Finding:
    """Only as an intuition: the test is theirs, but rejection sampling proposes anew and Metropolis–Hastings
    stays, and with this test neither has the target's distribution. The residual draw makes it exact."""
    rest, residual = 1 - overlap(p, q), positive_part(p, q)
    least = list(map(min, p, q))
    anew = distance([one / sum(least) for one in least], p)
    stays = max(distance([one + rest * (x == y) for y, one in enumerate(least)], p) for x in range(len(p)))
    drawn = distance([one + rest * left for one, left in zip(least, residual, strict=True)], p)
    return only_if(
        drawn == 0,
        anew == stays == 0,
        f"For one token TV = {anew} with a new proposal, up to {stays} if the last token stays, {drawn} with "
        "the residual.",
    )


# --- a guide ---------------------------------------------------------------------------------------------


@claim(
    GUIDE, "5, Acceptance Probability", "tokens with high target probability are more likely to be accepted"
)
def likelier(draft: tuple[int, ...] = (8, 1, 1)) -> Finding:
    """Only where the draft gives them the same probability: acceptance depends on p/q, not on p."""
    p, q = fractions(6, 1, 3), fractions(*draft)

    def rises(q: Row) -> bool:
        rates = [standard_test(p, q, x) for x in range(3)]
        return all(rates[x] >= rates[y] for x in range(3) for y in range(3) if p[x] > p[y])

    shown = ", ".join(
        f"{float(standard_test(p, q, x)):.2f} for p = {float(p[x]):g}, q = {float(q[x]):g}" for x in range(3)
    )
    return only_if(rises(fractions(1, 1, 1)), rises(q), f"The acceptance probability is {shown}.")


@claim(GUIDE, "4, What Happens", "fundamentally breaks the algorithm and produces incorrect results")
def other_tokens() -> Finding:
    """If ids mean other texts to the draft, it is a bad draft: acceptance falls, and the output keeps the
    target's distribution."""
    order = (1, 2, 0)
    rows = [[row(DRAFT, [order[x]])[order[y]] for y in range(3)] for x in range(3)]
    found = step(TARGET, TableModel(rows))
    p, q = ngram_rows()
    wrong = q[:, np.random.default_rng(0).permutation(q.shape[1])]
    return decide(
        found.tv > 0,
        f"TV = {found.tv} for a draft with permuted ids; on the n-gram pair permuted ids lower α from "
        f"{ngram_alpha(p, q):.3f} to {ngram_alpha(p, wrong):.3f}.",
    )


@claim(GUIDE, "4, First requirement", "Both models must have exactly the same number of tokens")
def other_vocabulary() -> Finding:
    """A draft with a smaller vocabulary is correct if its rows are padded with zeros."""
    found = step(TARGET, TableModel([fractions(1, 2, 0), fractions(2, 1, 0), fractions(1, 1, 0)]))
    return decide(
        found.tv > 0,
        f"TV = {found.tv} for a draft over 2 of the target's 3 tokens, with {float(found.tokens):.3f} tokens "
        "a step of 2.",
    )


@claim(GUIDE, "9, Pitfall Two", "If you apply temperature inconsistently, the … guarantee is violated")
def unequal_temperatures(t: int = 2) -> Finding:
    """Only if the test uses another row than the one drawn from. Draft and target may have different
    temperatures."""

    def cold(model: Model) -> TableModel:  # rows ∝ w²: at half the temperature
        rows = [[weight**t for weight in row(model, [x])] for x in range(3)]
        return TableModel([[weight / sum(weights) for weight in weights] for weights in rows])

    drawn, believed = step(cold(TARGET), DRAFT).tv, step(cold(TARGET), DRAFT, believed=cold(DRAFT)).tv
    return only_if(
        believed > 0,
        drawn > 0,
        f"With the target at half the draft's temperature TV = {drawn} if q is the row that was drawn from, "
        f"{float(believed):.3f} if q is taken at the target's temperature.",
    )


@claim(GUIDE, "9, Misconception Three", "there is no systematic relationship [of temperature and acceptance]")
def no_relationship(
    temperatures: tuple[float, ...] = (0.0, 0.5, 1.0, 2.0, 5.0), slight: float = 0.05
) -> Finding:
    """On the n-gram pair acceptance falls from temperature 0 to 1, and then rises: at a high temperature both
    rows become uniform."""
    p, q = ngram_rows()
    alphas = {t: ngram_alpha(temperature(p, t), temperature(q, t)) for t in temperatures}
    found = f"On the n-gram pair α is {listed(alphas, '.3f', ' at ')}."
    return decide(max(alphas.values()) - min(alphas.values()) < slight, found)


@claim(GUIDE, "7, execution trace", "Drafted: 4 … Accepted: 2 … Rejected: 2")
def rejected(printed: int = 2, drafted: int = 4, accepted: int = 2) -> Finding:
    """One token was rejected; the token after it was never tested."""
    tested = min(drafted, accepted + 1)
    return decide(
        tested - accepted == printed,
        f"{tested} of {drafted} tokens were tested and {tested - accepted} rejected: α is "
        f"{accepted / tested:.3f} per tested token, not {accepted / drafted:.3f}.",
    )


def guide_speed(alpha: float, k: int, r: float) -> float:
    """(αK + β)/(Kr + 1), where β = α^K is the chance that all pass."""
    return (alpha * k + alpha**k) / (k * r + 1)


@claim(GUIDE, "8, The Speedup Formula Explained", "Speedup = (α × K + β) / (K × r + 1)")
def formula(
    k: int = 4, r: float = 0.1, printed: Callable[[float, int, float], float] = guide_speed
) -> Finding:
    """A step that rejects emits a token too: the numerator is αK + 1 if α is accepted / drafted, and (1 -
    α^{K+1})/(1 - α) if α is per tested token."""
    alphas = np.linspace(0.05, 0.95, 19)
    both = [[printed(a, k, r) / exact(a, k, r) - 1 for a in alphas] for exact in (speed_of_share, speed)]
    one, drafted, tested = printed(0.75, k, r), speed_of_share(0.75, k, r), speed(0.75, k, r)
    bands = [f"{min(band):+.0%} to {max(band):+.0%}" for band in both]
    return decide(
        any(max(map(abs, band)) < 1e-9 for band in both),
        f"{one:.3f} at α = 0.75, K = {k}, r = {r}; correct is {drafted:.3f} if α is accepted / drafted, "
        f"{tested:.3f} if it is per tested token. For α from 0.05 to 0.95 it is off by {bands[0]} in the "
        f"first reading, {bands[1]} in the second.",
    )


@claim(GUIDE, "5, The Bonus Token; 6, code", "improves efficiency without any additional cost")
def bonus_pass(alpha: float = 0.75, k: int = 4, r: float = 0.1, passes: int = 1) -> Finding:
    """The code makes a target pass of its own for the bonus, which costs more than the bonus gains."""
    tokens, every = float(theory.expected_tokens(alpha, k)), alpha**k
    free, paid = tokens / (k * r + 1), tokens / (k * r + 1 + passes * every)
    return decide(
        paid == free,
        f"{paid:.3f} times as fast with the second pass, {free:.3f} without it, "
        f"{(tokens - every) / (k * r + 1):.3f} without any bonus (α = {alpha}, K = {k}, r = {r}).",
    )


@claim(GUIDE, "8, Break-Even Analysis", "α > r + 1/K … the minimum … rate needed for any speedup … = 0.35")
def break_even(printed: float = 0.35, r: float = 0.1, k: int = 4) -> Finding:
    """At K drafts a gain begins at α > r if α is accepted / drafted; with the best K it begins at α > r in
    either reading."""
    begins = root(lambda alpha: speed(alpha, k, r) - 1.0)
    return decide(
        max(speed(printed - 0.01, k, r), speed_of_share(printed - 0.01, k, r)) <= 1,
        f"With r = {r} and K = {k} a gain begins at accepted / drafted = {r}, or α = {begins:.3f} per tested "
        f"token; at α = {printed} the best K is {best_speed(printed, r):.3f} times as fast.",
    )


@claim(GUIDE, "8, Optimal K Selection", "If your acceptance rate is above eighty percent, use K = 6 to 8")
def six_to_eight(ks: tuple[int, int] = (6, 8), share: float = 0.95) -> Finding:
    """Only for one range of r. The best K depends on the draft's cost as much as on the acceptance rate."""
    kept = {
        r: min(
            max(speed(a, k, r) for k in range(ks[0], ks[1] + 1)) / best_speed(a, r)
            for a in np.linspace(0.8, 0.95, 9).tolist()
        )
        for r in (0.02, 0.05, 0.1, 0.2)
    }
    shown = ", ".join(
        f"{value:.0%} at r = {r} (best K {theory.optimal_gamma(0.8, r)} to {theory.optimal_gamma(0.95, r)})"
        for r, value in kept.items()
    )
    return only_if(
        max(kept.values()) >= share,
        min(kept.values()) >= share,
        f"For α from 0.8 to 0.95 one of these K keeps at least {shown} of the best speed.",
    )


@claim(GUIDE, "1, The Promise", "no downsides except implementation complexity")
def no_downsides(k: int = 4) -> Finding:
    """Speculative decoding costs arithmetic operations and memory, and is slower if acceptance is low."""
    factors = {alpha: float(theory.operations_factor(alpha, k, 0.1)) for alpha in (0.5, 0.75, 0.95)}
    slow = speed(0.3, k, 0.2)
    return decide(
        max(factors.values()) <= 1 and slow >= 1,
        f"The operations grow by a factor of {listed(factors, '.2f', ' at α = ')} (K = {k}, ĉ = 0.1); the "
        f"speed is {slow:.2f} at α = 0.3, r = 0.2.",
    )


#: The guide's table: draft, r, acceptance rates, K, printed speeds.
SPEEDS = (
    ("GPT-2 Small", 0.12, (0.70, 0.80), (4, 6), (2.3, 2.8)),
    ("DistilGPT-2", 0.08, (0.65, 0.75), (4, 6), (2.5, 3.0)),
    ("GPT-2 Medium", 0.45, (0.80, 0.90), (3, 4), (1.6, 2.0)),
    ("Llama-2-7B", 0.10, (0.75, 0.85), (5, 7), (2.8, 3.5)),
)  # fmt: skip


@claim(
    GUIDE, "8, Empirical Performance Data", "r 0.12 … acceptance rate: 0.70 to 0.80 … speedup: 2.3x to 2.8x"
)
def printed_speeds(printed: Sequence[tuple[str, float, Any, Any, tuple[float, float]]] = SPEEDS) -> Finding:
    """Only in part, and if the rate is accepted / drafted: the printed ranges meet those that follow."""
    shown: list[str] = []
    meet = within = 0
    for draft, r, alphas, ks, (low, high) in printed:
        points = [
            (alpha, k, cost)
            for alpha in alphas
            for k in range(ks[0], ks[1] + 1)
            for cost in (r - 0.005, r + 0.005)  # as r is rounded
        ]
        tested, drafted = (sorted(of(*point) for point in points) for of in (speed, speed_of_share))
        meet += drafted[0] <= high and low <= drafted[-1]
        within += any(found[0] <= low and high <= found[-1] for found in (tested, drafted))
        shown.append(
            f"{low} to {high} for {draft} ({tested[0]:.2f} to {tested[-1]:.2f} per tested token, "
            f"{drafted[0]:.2f} to {drafted[-1]:.2f} for accepted / drafted)"
        )
    return only_if(meet == len(printed), within == len(printed), f"Printed are {'; '.join(shown)}.")


# --- the table and the page ------------------------------------------------------------------------------


def run(*, fast: bool = False, rng: int = 0, progress: Progress | None = None) -> list[dict[str, Any]]:
    """Return a row for each claim: id, document, where, quote, verdict, correct and found.

    All checks are exact and quick, so `fast` and `rng` change nothing. `progress` is called after each claim.
    """
    rows = []
    for done, (name, (document, where, quote, check)) in enumerate(CLAIMS.items(), 1):
        verdict, found = check()
        correct = " ".join((inspect.getdoc(check) or "").split())
        rows.append(
            {"id": name, "document": document, "where": where, "quote": quote}
            | {"verdict": verdict, "correct": correct, "found": found}
        )
        if progress is not None:
            progress(done, len(CLAIMS))
    return rows


HEAD = """# What is said about speculative decoding, checked

Claims of {documents} documents that explain speculative decoding, checked by `experiments.literature.claims`.
{right} of {claims} are right, {conditional} are right only under a condition that the document does not
state, and {wrong} are wrong. Claims that teach something were chosen, so these counts are no error rates.

p is the target model's distribution and q the draft's, except in quotes from the article of Ran Ding, which
swaps the letters. K (or γ) is the number of drafted tokens in a step, α the probability that a drafted token
is accepted once it is tested, r (or c) the time of a draft pass over that of a target pass. TV is the total
variation distance between the distribution of the emitted tokens and the target's distribution, as an exact
fraction or rounded; TV = 0 is exact. Each row has the correct statement, and the numbers that the check
computed."""


def page(rows: Sequence[dict[str, Any]]) -> str:
    """Return docs/results/claims.md: the counts, and a table of claims for each document."""
    counts = Counter(row["verdict"] for row in rows)
    right, conditional, wrong = (counts[verdict] for verdict in VERDICTS)
    parts = [
        HEAD.format(
            documents=len(SOURCES), claims=len(rows), right=right, conditional=conditional, wrong=wrong
        )
    ]
    names = ("where", "quote", "verdict", "correct", "found")
    for document, source in SOURCES.items():
        lines = [
            [f"**{WRONG}**" if found[name] == WRONG else _plain(found[name]) for name in names]
            for found in rows
            if found["document"] == document
        ]
        head = ("where", "quote", "verdict", "correct statement", "computed")
        parts += [f"## {_plain(document)}", source, markdown_table(head, lines)]
    return joined(parts)


def _plain(text: str) -> str:
    """`text` with all Markdown marks escaped."""
    for mark in "\\|*_<>[]~":
        text = text.replace(mark, "\\" + mark)
    return text
