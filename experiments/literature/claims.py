"""Statements that explanations of speculative decoding make, each checked by a program.

The table claims.toml has those about verification, drafting and their speed that teach something: where each
is found, its words, and the correct statement. Claims that are wrong or need a condition were preferred, so
that the counts are no error rates. The function of a claim's name here checks it. One about a distribution
enumerates it in exact fractions, one about speed uses the closed forms of `specsim.theory`, and some measure
the n-gram pair of models. Nothing is random.

Numbers that a document prints are default arguments, so that a test can give others.
"""

import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments import Progress
from experiments import Row as Record
from experiments._pages import joined, markdown_table, written
from experiments.literature.published.values import ALPHAS, FIGURES
from specsim import default_pair, prove, rules, speculative_accept, theory
from specsim.distributions import temperature
from specsim.models import Model, TableModel, branching
from specsim.planning import Hardware, Network, Roofline
from specsim.rules import Rule, tokenwise

TITLE = "Claims about speculative decoding, checked"

VERDICTS = RIGHT, CONDITIONAL, WRONG = "right", "right with a condition", "wrong"


class Claim(NamedTuple):
    """A statement of a document, as printed and shortened; `found` has fields for the numbers of its
    check."""

    document: str
    where: str
    quote: str
    correct: str
    found: str


class Finding(NamedTuple):
    """The verdict of a check, and its variables, with which the claim's text is filled."""

    verdict: str
    numbers: Mapping[str, Any]


def _read() -> tuple[dict[str, str], dict[str, Claim]]:
    """Where each document is found, and all claims by name, in the order of the page."""
    table = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    sources = {document: entry.pop("source").strip() for document, entry in table.items()}
    claims = {
        name: Claim(document, **{part: " ".join(text.split()) for part, text in claim.items()})
        for document, entry in table.items()
        for name, claim in entry.items()
    }
    return sources, claims


SOURCES, CLAIMS = _read()


def decide(holds: bool | np.bool_, numbers: Mapping[str, Any]) -> Finding:
    """Return the finding for a claim that holds or does not."""
    return Finding(RIGHT if holds else WRONG, numbers)


def only_if(there: bool | np.bool_, elsewhere: bool | np.bool_, numbers: Mapping[str, Any]) -> Finding:
    """Return the finding for a claim that holds under a condition (`there`), and without it (`elsewhere`) or
    not."""
    return Finding((RIGHT if elsewhere else CONDITIONAL) if there else WRONG, numbers)


def listed(numbers: Mapping[float, float], form: str, at: str) -> str:
    """Format numbers as "0.50 at K = 1, 0.60 at K = 2"."""
    return ", ".join(f"{value:{form}}{at}{key:g}" for key, value in numbers.items())


# --- distributions in fractions --------------------------------------------------------------------------

Row = Sequence[Fraction]


def fractions(*weights: int) -> list[Fraction]:
    """Return a pmf in proportion to whole numbers."""
    return [Fraction(weight, sum(weights)) for weight in weights]


def row(model: Model, *context: int) -> list[Fraction]:
    """Return the row of an exact model after `context`."""
    return [Fraction(weight) for weight in model.row(context)]


def each_row(model: Model, change: Callable[[Row], Row]) -> TableModel:
    """Return a model of three tokens with each row changed."""
    return TableModel([change(row(model, x)) for x in range(3)])


def certain(pmf: Row) -> Row:
    """Return the row with all mass on the most probable token, the first among ties."""
    return [Fraction(x == list(pmf).index(max(pmf))) for x in range(len(pmf))]


def colder(pmf: Row) -> Row:
    """Return the row at half the temperature."""
    return [weight**2 / sum(other**2 for other in pmf) for weight in pmf]


#: A pair of rows, and a pair of models with a row after each token.
P, Q = fractions(3, 2, 1), fractions(1, 2, 3)
TARGET = TableModel([P, fractions(1, 3, 2), fractions(2, 1, 2)])
DRAFT = TableModel([Q, fractions(2, 1, 1), fractions(1, 2, 2)])


def proofs(rule: str | Rule, target: Model, draft: Model, **options: Any) -> list[Any]:
    """Return the proof of a rule on a small pair after each context that the models read."""
    contexts = product(range(target.vocab_size), repeat=max(target.order, draft.order))
    return [prove(target, draft, rule=rule, context=context, **options) for context in contexts]


def tv(rule: str | Rule = "standard", target: Model = TARGET, draft: Model = DRAFT, **options: Any) -> float:
    """Return the largest total variation of a rule over all contexts of a small pair; exactly 0 if exact."""
    return float(max(proof.tv for proof in proofs(rule, target, draft, **options)))


def tokens_a_step(draft: Model, gamma: int = 2) -> float:
    """Return the mean tokens a step of the standard rule with the small target."""
    return float(np.mean([proof.mean_tokens for proof in proofs("standard", TARGET, draft, gamma=gamma)]))


def variant(law: Callable[..., Any]) -> Rule:
    """Return the standard rule with another law of a step."""
    return replace(rules.get("standard"), name="variant", law=law)


def standard_test(p: Row, q: Row, x: int) -> Fraction:
    """min(1, p/q); 1 if the test assumes that x cannot be drafted."""
    return min(Fraction(1), p[x] / q[x]) if q[x] else Fraction(1)


def altered(
    accept: Callable[[Row, Row, int], Fraction] = standard_test,
    recovered: Callable[[Row, Row], Row] = tokenwise.positive_part,
) -> Rule:
    """Return the standard rule with another test, or another distribution after a rejection."""
    return variant(tokenwise.law("variant", accept, lambda p, q, x: recovered(p, q)))


def believing(believed: Callable[[Row], Row]) -> Rule:
    """Return the standard rule with the test and the residual of another row than the one drawn from."""
    law = altered().law
    return variant(lambda parents, tokens, p, q: law(parents, tokens, p, [believed(one) for one in q]))


@cache
def ngram_rows(contexts: int = 1024) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the n-gram target and draft after the first `contexts` contexts of the target."""
    target, draft = default_pair()
    chosen = target.contexts[:contexts]
    return target.rows(chosen), draft.rows(chosen)


def ngram_alpha(hot: float = 1.0, draft: float | None = None) -> float:
    """α of the n-gram pair at a temperature, or at one of the target and one of the draft."""
    p, q = ngram_rows()
    own = hot if draft is None else draft
    return float(np.mean(theory.acceptance_rate(temperature(p, hot), temperature(q, own))))


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


def alpha_for(wanted: float, speed_at: Callable[[float], float]) -> float:
    """Return the α at which a speed that rises with it is the one wanted."""
    from scipy.optimize import brentq

    return float(brentq(lambda alpha: speed_at(alpha) - wanted, 0.0, 1.0 - 1e-6, xtol=1e-12))


# --- checks of claims about verification -----------------------------------------------------------------


def closed_test(bits: int = 24) -> Finding:
    at_zero, above = (speculative_accept([0], [[0.0, 1.0]], [[1.0, 0.0]], [r]) for r in (0.0, 2.0**-bits))
    draws = 2**bits
    return only_if(above == [], at_zero == [], locals())


def lossless(recovered: Callable[[Row, Row], Row] = tokenwise.positive_part) -> Finding:
    residual, again = tv(altered(recovered=recovered)), tv(altered(recovered=lambda p, q: p))
    return decide(residual == 0, locals())


def own_sample(recovered: Callable[[Row, Row], Row] = lambda p, q: p) -> Finding:
    own, residual = tv(altered(recovered=recovered)), tv(altered())
    return decide(own == 0, locals())


def greedy_match() -> Finding:
    greedy, sampled = tv("greedy_match", each_row(TARGET, certain)), tv("greedy_match")
    return only_if(greedy == 0, sampled == 0, locals())


def any_strategy() -> Finding:
    warm = TableModel([fractions(2, 3, 3), fractions(3, 2, 2), fractions(2, 3, 3)])
    cut = TableModel([fractions(0, 2, 3), fractions(2, 1, 0), fractions(0, 1, 1)])
    exact = max(tv(draft=draft) for draft in (DRAFT, each_row(DRAFT, certain), warm, cut))
    uncut = {tuple(row(cut, x)): row(DRAFT, x) for x in range(3)}
    other = tv(believing(lambda q: uncut[tuple(q)]), draft=cut)
    return decide(exact == 0, locals())


def wrong_cache(other: int = 1) -> Finding:
    near = [fractions(5, 3, 1), fractions(1, 4, 2), fractions(3, 1, 2)]
    lost = TableModel([[near[before]] * 3 for before in range(3)])  # it has not seen the last token
    found, intact, stale = tv(draft=lost), tokens_a_step(TableModel(near)), tokens_a_step(lost)
    rows = {tuple(near[x]): near[(x + other) % 3] for x in range(3)}  # the test has those after another token
    mixed = tv(believing(lambda q: rows[tuple(q)]), draft=lost)
    return only_if(mixed > 0, found > 0, locals())


def untouched_target() -> Finding:
    target, draft = TableModel(P), TableModel(fractions(2, 1, 1))
    top = tv("deterministic_children", target, draft, gamma=branching(2, 2, draft_sampling="top"))
    pruned = tv("pruned_children", target, draft, gamma=branching(3))
    return only_if(top == 0, pruned == 0, locals())


def medusa(rule: str = "typical") -> Finding:
    found = tv(rule)
    return decide(found > 0, locals())


def lookahead(rule: str = "one_hot") -> Finding:
    found = tv(rule, draft=TableModel([fractions(0, 1, 0), fractions(0, 0, 1), fractions(1, 0, 0)]))
    return decide(found > 0, locals())


def pointwise_envelope(rule: str = "pointwise_envelope") -> Finding:
    found, least = tv(rule), list(map(min, P, Q))
    passes, wanted = ", ".join(str(mass / sum(least)) for mass in least), ", ".join(map(str, P))
    return decide(found == 0, locals())


def lenient_sign(sign: str = "≤", lenience: Fraction = Fraction(1, 2)) -> Finding:
    bound = lenience * max(P)
    kept = " and ".join(str(p) for p in P if (p <= bound if sign == "≤" else p >= bound))
    rejected = " and ".join(str(p) for p in P if str(p) not in kept)
    return decide(str(max(P)) in kept, locals())


def clamped(epsilons: tuple[Fraction, ...] = (Fraction(1, 100), Fraction(1, 10), Fraction(1, 2))) -> Finding:
    target, draft = TableModel(fractions(1, 1, 1)), TableModel(fractions(20, 39, 1))

    def at(eps: Fraction) -> float:
        return tv(altered(lambda p, q, x: min(Fraction(1), p[x] / max(q[x], eps))), target, draft)

    found = {float(eps): at(eps) for eps in epsilons}
    shown = listed(found, ".3g", " at eps = ")
    return only_if(min(found.values()) == 0, max(found.values()) == 0, locals())


def pseudocode(doubled: bool = True) -> Finding:
    first = [fractions(1, 2, 3), fractions(2, 1, 1), fractions(1, 2, 2)]
    second = [fractions(3, 1, 2), fractions(1, 1, 2), fractions(2, 2, 1)]
    draft = TableModel([first, second, [first[2], second[0], first[1]]])

    def law(parents: Any, tokens: Any, p: Sequence[Row], q: Sequence[Row]) -> Any:
        again = row(draft, tokens[0], tokens[0])
        return altered().law(parents, tokens, p, [q[0], again if doubled else q[1]])

    found, once = tv(variant(law), draft=draft), tv(draft=draft)
    return decide(found == 0, locals())


def like_a_chain(p: Row = P, q: Row = Q) -> Finding:
    def distance(one: Row) -> Fraction:
        return sum((abs(a - b) for a, b in zip(one, p, strict=True)), Fraction(0)) / 2

    least, residual = list(map(min, p, q)), tokenwise.positive_part(p, q)
    rest = 1 - sum(least)
    anew = distance([one / sum(least) for one in least])
    stays = max(distance([one + rest * (x == y) for y, one in enumerate(least)]) for x in range(len(p)))
    drawn = distance([one + rest * left for one, left in zip(least, residual, strict=True)])
    return only_if(drawn == 0, anew == stays == 0, locals())


def other_ids() -> Finding:
    order = (1, 2, 0)
    found = tv(draft=TableModel([[row(DRAFT, order[x])[order[y]] for y in range(3)] for x in range(3)]))
    p, q = ngram_rows()
    wrong = float(np.mean(theory.acceptance_rate(p, q[:, np.random.default_rng(0).permutation(q.shape[1])])))
    alpha = ngram_alpha()
    return decide(found > 0, locals())


def other_vocabulary() -> Finding:
    draft = TableModel([fractions(1, 2, 0), fractions(2, 1, 0), fractions(1, 1, 0)])
    found, tokens = tv(draft=draft), tokens_a_step(draft)
    return decide(found > 0, locals())


# --- checks of claims about what is accepted -------------------------------------------------------------


def more_rejections() -> Finding:
    standard, both, sampled = ngram_alpha(), ngram_alpha(0.0), ngram_alpha(0.0, 1.0)
    return only_if(sampled < standard, both < standard, locals())


def always_rejects(gamma: int = 3) -> Finding:
    accepted, draft = ngram_alpha(1.0, 0.0), each_row(DRAFT, certain)
    found, tokens = tv(draft=draft, gamma=gamma), tokens_a_step(draft, gamma)
    return decide(accepted == 0, locals())


def mean_of_beta(low: float = 0.3, high: float = 0.95, gamma: int = 5, extra: int = 0) -> Finding:
    formula = float(theory.expected_tokens((low + high) / 2, gamma + extra))
    betas = product((low, high), repeat=gamma)
    each = np.mean([float(theory.expected_tokens_by_position(one)) for one in betas])
    once = np.mean(theory.expected_tokens(np.array([low, high]), gamma))
    return decide(np.isclose(each, formula), locals())


def lenience_raises(leniences: tuple[float, ...] = (0.1, 0.3, 0.5, 1.0)) -> Finding:
    p, q = ([float(weight) for weight in weights] for weights in (P, Q))
    rates = {lenience: float(theory.acceptance_rate(p, q, lenience)) for lenience in leniences}
    shown = listed(rates, ".3f", " at l = ")
    return decide([*rates.values()] == sorted(rates.values()), locals())


def rates(low: float = 0.7, high: float = 0.95) -> Finding:
    known = [
        float(figure.printed)
        for figure in FIGURES
        if figure.where == ALPHAS and figure.quantity.startswith("α") and "gram" not in figure.quantity
    ]
    inside = sum(low <= alpha <= high for alpha in known)
    total, least, most = len(known), min(known), max(known)
    return only_if(inside > 0, inside > 0.9 * total, locals())


def whole_batch(k: int = 4) -> Finding:
    alpha = ngram_alpha(0.0)
    some = float(sum(theory.accepted_law(alpha, k)[1:-1]))
    return decide(some == 0, locals())


def greedy_breaks(sampling: float = 1.0) -> Finding:
    found = tv("greedy_match", each_row(TARGET, certain))
    greedy, sampled = ngram_alpha(0.0), ngram_alpha(sampling)
    return decide(found > 0 or greedy < sampled, locals())


def unlikely_token(p: float = 0.3, q: float = 0.7) -> Finding:
    chance = min(1.0, p / q)
    return decide(chance == 0, locals())


def same_temperature(grid: tuple[float, ...] = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.5)) -> Finding:
    found = {draft: ngram_alpha(1.0, draft) for draft in grid}
    at = max(found, key=found.__getitem__)
    same, best, cold = ngram_alpha(), found[at], each_row(DRAFT, colder)
    warm = {tuple(row(cold, x)): row(DRAFT, x) for x in range(3)}
    drawn, believed = tv(draft=cold), tv(believing(lambda q: warm[tuple(q)]), draft=cold)
    return decide(at == 1.0, locals())


def cold_draft(cold: float = 0.1, grid: tuple[float, ...] = (0.0, 0.1, 0.3, 0.5, 0.8, 1.0, 1.5)) -> Finding:
    greedy, sampled = (
        ngram_alpha(target, cold) / max(ngram_alpha(target, draft) for draft in grid) for target in (0.0, 1.0)
    )
    return only_if(greedy > 0.98, sampled > 0.98, locals())


def hot_text(temperatures: tuple[float, ...] = (0.0, 0.5, 1.0, 2.0, 5.0)) -> Finding:
    alphas = [ngram_alpha(t) for t in temperatures]
    shown = listed(dict(zip(temperatures, alphas, strict=True)), ".3f", " at ")
    return only_if(alphas[1] < alphas[0], alphas == sorted(alphas, reverse=True), locals())


# --- checks of claims about speed ------------------------------------------------------------------------


def acceptance_governs(alpha: float = 0.8, k: int = 5, low: float = 0.02, high: float = 0.6) -> Finding:
    cheap, dear = speed(alpha, k, low), speed(alpha, k, high)
    return only_if(cheap > 1, dear > 1, locals())


def parallel(tokens: int = 1024) -> Finding:
    cost = Roofline(Network(70e9), Network(7e9), Hardware(1.555e12, 312e12))  # an A100, from its data sheet
    free = cost.free_tokens
    few, many = cost.step_of((), free - 1), cost.step_of((), tokens - 1)
    return only_if(few < 1.01, many < 1.01, locals())


def two_to_four(low: float = 2.0, high: float = 4.0, alphas: tuple[float, float] = (0.7, 0.95)) -> Finding:
    speeds = {r: [best_speed(alpha, r) for alpha in alphas] for r in (0.02, 0.1, 0.2)}
    least, most = (alpha_for(wanted, lambda alpha: best_speed(alpha, 0.1)) for wanted in (2.0, 4.0))
    inside = [low <= value <= high for pair in speeds.values() for value in pair]
    shown = ", ".join(f"{slow:.2f} to {fast:.2f} at r = {r}" for r, (slow, fast) in speeds.items())
    return only_if(any(inside), all(inside), locals())


def share_for_alpha(share: float = 0.75, gamma: int = 4) -> Finding:
    exact, formula = share * gamma + 1, float(theory.expected_tokens(share, gamma))
    return decide(np.isclose(formula, exact), locals())


def three_to_five(
    most: int = 5, alpha: float = 0.8, costs: tuple[float, ...] = (0.02, 0.05, 0.1, 0.2)
) -> Finding:
    best = {r: int(theory.optimal_gamma(alpha, r)) for r in costs}
    shown = listed(best, "d", " at r = ")
    return only_if(min(best.values()) <= most, max(best.values()) <= most, locals())


def rate_times_length(
    rate: float = 0.75, k: int = 4, r: float = 0.1, printed: Callable[..., float] | None = None
) -> Finding:
    exact = speed_of_share(rate, k, r)
    said = printed(rate, k, r) if printed else rate * k - k * r
    return decide(np.isclose(said, exact), locals())


def accepted_only(alpha: float = 0.8, k: int = 4, r: float = 0.1, forgotten: int = 1) -> Finding:
    def printed(alpha: float) -> float:
        return speed(alpha, k, r) - forgotten / (k * r + 1.0)

    said, exact = printed(alpha), speed(alpha, k, r)
    wrong, right = alpha_for(1.0, printed), alpha_for(1.0, lambda alpha: speed(alpha, k, r))
    return decide(np.isclose(said, exact), locals())


def below_half(rate: float = 0.49, k: int = 4, costs: tuple[float, ...] = (0.05, 0.1, 0.5)) -> Finding:
    speeds = {r: speed_of_share(rate, k, r) for r in costs}
    shown = listed(speeds, ".2f", " at r = ")
    return only_if(min(speeds.values()) < 1, max(speeds.values()) < 1, locals())


def three_in_one(k: int = 3, r: float = 0.1, emitted: int = 3) -> Finding:
    none, most, said = speed(0.0, k, r), speed(1.0, k, r), emitted / (k * r + 1.0)
    alpha = alpha_for(said, lambda alpha: speed(alpha, k, r))
    return only_if(none < said < most, none == most, locals())


# --- the table and the page ------------------------------------------------------------------------------


def run(*, fast: bool = False, rng: int = 0, progress: Progress | None = None) -> list[Record]:
    """Return a row for each claim: id, document, where, quote, verdict, correct and found.

    All checks are exact and quick, so `fast` and `rng` change nothing. `progress` is called after each claim.
    """
    rows = []
    for done, (name, claim) in enumerate(CLAIMS.items(), 1):
        verdict, numbers = globals()[name]()
        found = claim.found.format_map(numbers)
        rows.append({"id": name, "verdict": verdict} | claim._asdict() | {"found": found})
        if progress is not None:
            progress(done, len(CLAIMS))
    return rows


def page(rows: Sequence[Record]) -> str:
    """Return docs/results/claims.md: the counts, and a table of claims for each document."""
    counts = Counter(row["verdict"] for row in rows)
    right, conditional, wrong = (counts[verdict] for verdict in VERDICTS)
    documents, claims = len(SOURCES), len(rows)
    head = ("where", "quote", "verdict", "correct statement", "computed")
    parts = []
    for document, source in SOURCES.items():
        lines = [
            [f"**{WRONG}**" if found[name] == WRONG else _plain(found[name]) for name in PARTS]
            for found in rows
            if found["document"] == document
        ]
        parts += [f"## {_plain(document)}", source, markdown_table(head, lines)]
    tables = joined(parts)
    return written("claims", locals())


#: The columns of a table, by their names in a row.
PARTS = ("where", "quote", "verdict", "correct", "found")


def _plain(text: str) -> str:
    """`text` with all Markdown marks escaped."""
    for mark in "\\|*_<>[]~":
        text = text.replace(mark, "\\" + mark)
    return text
