"""The API reference of a Python package: strategies of drafting and verifying, and what its caches hold."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from experiments.literature.claims.claim import Document, Finding, decide, only_if
from experiments.literature.claims.laws import (
    DRAFT,
    TARGET,
    certain,
    fractions,
    ngram_rows,
    row,
    simplex,
    standard_test,
    step,
)
from specsim.models import Session, TableModel
from specsim.rules._common.tokenwise import positive_part
from specsim.theory._enumeration import prove

__all__ = ["DOCUMENT", "caches"]

DOCUMENT = Document(
    title="naive_speculate.speculate",
    source="The API reference of a Python package, page of this module. It gives no author, date or address.",
    listed=13,
    another_subject=1,
    repeated=3,
    unmeasured=0,
)

GREEDY_TARGET = TableModel([certain(row(TARGET, [x])) for x in range(3)])
GREEDY_DRAFT = TableModel([certain(row(DRAFT, [x])) for x in range(3)])


# --- strategies ------------------------------------------------------------------------------------------


@DOCUMENT.claim(
    "naive.greedy_match",
    where="decode",
    quote="GREEDY_MATCH … is legal to combine with any drafter sampling strategy",
    correct="Only for greedy decoding: greedy match emits the target's argmax whatever is drafted, not "
    "samples of the target.",
)
def greedy_match_is_legal() -> Finding:
    greedy = prove(GREEDY_TARGET, DRAFT, rule="greedy_match").tv
    sampled = max(prove(TARGET, DRAFT, rule="greedy_match", context=(x,)).tv for x in range(3))
    return only_if(
        greedy == 0,
        sampled == 0,
        f"TV = {greedy} from the law of the target's argmax, {float(sampled):.3f} from the target's own law.",
    )


@DOCUMENT.claim(
    "naive.more_rejections",
    where="decode",
    quote="normally leads to more rejections, since it requires exact matches",
    correct="Only for sampled drafts. The text compares greedy drafts, which greedy match can accept more "
    "often.",
)
def greedy_match_rejects_more() -> Finding:
    p, q = ngram_rows()
    standard = float(np.minimum(p, q).sum(axis=1).mean())
    both = float((p.argmax(axis=1) == q.argmax(axis=1)).mean())
    sampled = float(np.take_along_axis(q, p.argmax(axis=1)[:, None], axis=1).mean())
    return only_if(
        sampled < standard,
        both < standard,
        f"On the n-gram pair speculative sampling accepts {standard:.3f} of the tokens, greedy match "
        f"{sampled:.3f} of sampled drafts and {both:.3f} of greedy drafts.",
    )


@DOCUMENT.claim(
    "naive.any_strategy",
    where="decode",
    quote="legal … as long as the sampling strategy defines a valid proposal distribution",
    correct="Speculative sampling is lossless for any way of drafting, if q is the row that the token was "
    "drawn from.",
)
def any_strategy_is_legal() -> Finding:
    warm = TableModel([fractions(2, 3, 3), fractions(3, 2, 2), fractions(2, 3, 3)])
    cut = TableModel([fractions(0, 2, 3), fractions(2, 1, 0), fractions(0, 1, 1)])
    exact = [step(TARGET, draft).tv for draft in (DRAFT, GREEDY_DRAFT, warm, cut)]
    other = step(TARGET, cut, believed=DRAFT).tv
    return decide(
        max(exact) == 0,
        f"TV = {max(exact)} for sampled, greedy, warmer and top-2 drafts; {float(other):.3f} for top-2 "
        "drafts that are tested with the uncut rows.",
    )


@DOCUMENT.claim(
    "naive.ill_defined",
    where="decode, greedy drafts",
    quote="makes the acceptance probability ill-defined",
    correct="The acceptance probability of a greedy draft x is p(x), because q(x) = 1.",
)
def ill_defined() -> Finding:
    rates = [
        standard_test(pmf, [Fraction(y == x) for y in range(3)], x) for pmf in simplex(3, 4) for x in range(3)
    ]
    defined = sum(0 <= rate <= 1 for rate in rates)
    return decide(
        defined < len(rates),
        f"min(1, p(x)/1) is defined in {defined} of {len(rates)} cases, from {min(rates)} to {max(rates)}.",
    )


@DOCUMENT.claim(
    "naive.always_rejects",
    where="decode, greedy drafts",
    quote="rejection always happens for each draft token",
    correct="A greedy draft x is accepted with probability p(x), so a step emits more than one token, with "
    "the target's law.",
)
def always_rejects(gamma: int = 3) -> Finding:
    p, q = ngram_rows()
    accepted = float(np.take_along_axis(p, q.argmax(axis=1)[:, None], axis=1).mean())
    found = step(TARGET, GREEDY_DRAFT, gamma=gamma)
    return decide(
        accepted == 0,
        f"{accepted:.3f} of the greedy drafts are accepted on the n-gram pair; on the small pair a step of "
        f"{gamma} emits {float(found.tokens):.3f} tokens, with TV = {found.tv}.",
    )


@DOCUMENT.claim(
    "naive.removed",
    where="decode, greedy drafts",
    quote="with the drafted token being removed from the vocabulary in sampling",
    correct="After a rejected greedy draft the residual is p without that token, renormalised.",
)
def removes_the_token() -> Finding:
    cases = [(p, x) for p in simplex(3, 4) for x in range(3) if p[x] < 1]
    same = sum(
        positive_part(p, [Fraction(token == x) for token in range(3)])
        == [weight * (token != x) / (1 - p[x]) for token, weight in enumerate(p)]
        for p, x in cases
    )
    return decide(same == len(cases), f"The two rows are equal in {same} of {len(cases)} cases.")


# --- caches ----------------------------------------------------------------------------------------------


def caches(gamma: int, accepted: int, *, cut_back: bool = True) -> tuple[int, int, int]:
    """After a step: drafted tokens in the caches of drafter and scorer, and tokens that the drafter must read
    next.

    A model caches each token that it reads. The drafter reads the query and all drafted tokens but the last;
    the scorer reads the query and all of them. `cut_back` drops what was rejected.
    """
    drafter, scorer = gamma - 1, gamma
    if cut_back:
        drafter, scorer = min(drafter, accepted), min(scorer, accepted)
    return drafter, scorer, accepted + 1 - drafter


def _cache_case(steps: list[tuple[int, int]], ahead: int, read: int) -> Finding:
    """Whether the scorer's cache is `ahead` of the drafter's, which must read `read` tokens next."""

    def holds(cut_back: bool) -> bool:
        found = [caches(gamma, n, cut_back=cut_back) for gamma, n in steps]
        return all(scorer - drafter == ahead and due == read for drafter, scorer, due in found)

    gamma, accepted = max(steps)
    drafter, scorer, due = caches(gamma, accepted)
    uncut = caches(gamma, accepted, cut_back=False)
    return only_if(
        holds(True),
        holds(False),
        f"After {accepted} of {gamma} tokens were accepted the drafter's cache holds {drafter} of them, the "
        f"scorer's {scorer}, and the drafter must read {due}; without the cut the caches hold {uncut[0]} and "
        f"{uncut[1]} ({len(steps)} cases).",
    )


@DOCUMENT.claim(
    "naive.cache_all",
    where="decode, caches, situation 2",
    quote="The scorer's kvcache will be one token longer than the drafter's kvcache",
    correct="If all drafts are accepted, the drafter must read two tokens next: the last draft and the new "
    "token.",
)
def all_tokens_accepted(ahead: int = 1, read: int = 2, most: int = 8) -> Finding:
    return _cache_case([(gamma, gamma) for gamma in range(1, most + 1)], ahead, read)


@DOCUMENT.claim(
    "naive.cache_some",
    where="decode, caches, situation 3",
    quote="the length of scorer's and drafter's kvcache is consistent",
    correct="Only after both caches are cut back to the accepted tokens, which the text does not mention.",
)
def some_tokens_accepted(ahead: int = 0, read: int = 1, most: int = 8) -> Finding:
    return _cache_case([(gamma, n) for gamma in range(2, most + 1) for n in range(1, gamma)], ahead, read)


@DOCUMENT.claim(
    "naive.wrong_cache",
    where="decode, caches",
    quote="the kvcache of the drafter will be wrong, which may lead to wrong generation results or even "
    "errors",
    correct="Only to errors, where the cache is too short to go on. Results keep the target's law "
    "whatever the drafter's cache holds; acceptance falls.",
)
def wrong_cache() -> Finding:
    """A drafter that lost the last token and reads the one before it."""
    near = [fractions(5, 3, 1), fractions(1, 4, 2), fractions(3, 1, 2)]
    intact = step(TARGET, TableModel(near))
    stale = step(TARGET, TableModel([[near[before]] * 3 for before in range(3)]))
    session = Session(TableModel([[near] * 3] * 3), [0])  # it reads three tokens, and has one
    try:
        session.advance([1])
        error = ""
    except ValueError as raised:
        error = str(raised)
    return only_if(
        bool(error),
        stale.tv > 0,
        f"TV = {stale.tv} for a drafter that misses the last token; tokens a step fall from "
        f"{float(intact.tokens):.3f} to {float(stale.tokens):.3f}. A cache that is too short: “{error}”.",
    )
