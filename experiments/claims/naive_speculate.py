"""The documentation of a Python package: strategies of drafting and verifying, and what its caches hold."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from experiments.claims.anatomy import Claim, Outcome, Setting, decide, only_if
from experiments.claims.laws import (
    DRAFT,
    TARGET,
    Row,
    fractions,
    row,
    simplex,
    standard_test,
    step,
)
from specsim.models import TableModel, default_pair
from specsim.rules._common.tokenwise import positive_part
from specsim.theory._enumeration import prove

__all__ = ["CLAIMS", "caches"]

SOURCE = "naive-speculate documentation"


def certain(pmf: Row) -> list[Fraction]:
    """The row that is sure of the most probable token, the first among ties."""
    best = list(pmf).index(max(pmf))
    return [Fraction(x == best) for x in range(len(pmf))]


GREEDY_TARGET = TableModel([certain(row(TARGET, [x])) for x in range(3)])
GREEDY_DRAFT = TableModel([certain(row(DRAFT, [x])) for x in range(3)])


def lengths(most_extra: int = 1) -> Outcome:
    sizes = {
        gamma: {len(emitted) for law in step(TARGET, DRAFT, gamma=gamma).laws.values() for emitted in law}
        for gamma in (1, 2, 3)
    }
    return decide(
        all(max(found) <= gamma + most_extra for gamma, found in sizes.items()),
        "; ".join(f"γ = {gamma}: {min(found)} to {max(found)} tokens" for gamma, found in sizes.items()),
    )


def greedy_match_is_legal() -> Outcome:
    greedy = prove(GREEDY_TARGET, DRAFT, rule="greedy_match").tv
    sampled = max(prove(TARGET, DRAFT, rule="greedy_match", context=(x,)).tv for x in range(3))
    return only_if(
        greedy == 0,
        sampled == 0,
        f"only if the target's argmax is what is wanted: from that law TV = {greedy} whatever is drafted, from the "
        f"target's own TV = {float(sampled):.3f}",
    )


def greedy_match_rejects_more(setting: Setting) -> Outcome:
    """On the n-gram pair: min(p, q) against equal argmaxes, and against the target's argmax for a sampled draft."""
    p, q = _ngram_rows(setting)
    standard = float(np.minimum(p, q).sum(axis=1).mean())
    both = float((p.argmax(axis=1) == q.argmax(axis=1)).mean())
    sampled = float(np.take_along_axis(q, p.argmax(axis=1)[:, None], axis=1).mean())
    return only_if(
        sampled < standard,
        both < standard,
        f"only if the draft is sampled: on the n-gram pair speculative sampling accepts {standard:.3f} of the tokens, "
        f"greedy match {sampled:.3f} of sampled drafts and {both:.3f} of greedy ones (the comparison that is named)",
    )


def ill_defined() -> Outcome:
    """With a certain draft the ratio is p(x)/1 at the one token that is ever drafted."""
    rates = [
        standard_test(pmf, [Fraction(y == x) for y in range(3)], x) for pmf in simplex(3, 4) for x in range(3)
    ]
    return decide(
        not all(0 <= rate <= 1 for rate in rates),
        f"min(1, p(x)/1) = p(x) at the one token that is drafted: defined in all {len(rates)} cases tried, from "
        f"{float(min(rates)):.3f} to {float(max(rates)):.3f}",
    )


def always_rejects(setting: Setting) -> Outcome:
    p, q = _ngram_rows(setting)
    accepted = float(np.take_along_axis(p, q.argmax(axis=1)[:, None], axis=1).mean())
    found = step(TARGET, GREEDY_DRAFT)
    return decide(
        accepted == 0,
        f"a greedy draft x passes with probability p(x): {accepted:.3f} on average over the n-gram pair's contexts; on "
        f"the small pair the law is the target's (TV = {found.tv}) at {float(found.tokens):.3f} tokens a step of 2",
    )


def degenerates() -> Outcome:
    found = step(TARGET, GREEDY_DRAFT, gamma=3)
    return decide(
        found.tokens == 1,
        f"{float(found.tokens):.3f} tokens for each pass of the target on the small pair with 3 greedy drafts; "
        "autoregressive decoding has 1",
    )


def removes_the_token() -> Outcome:
    """The residual of a certain draft against the target without that token."""
    checked = 0
    for p in simplex(3, 4):
        for x in range(3):
            if p[x] < 1:
                rest = [weight * (token != x) / (1 - p[x]) for token, weight in enumerate(p)]
                checked += positive_part(p, [Fraction(token == x) for token in range(3)]) == rest
    expected = sum(p[x] < 1 for p in simplex(3, 4) for x in range(3))
    return decide(
        checked == expected,
        f"(p - q)₊ of a certain draft is p without that token, renormalised, in {checked} of {expected} cases",
    )


def any_strategy_is_legal() -> Outcome:
    warm = TableModel([fractions(2, 3, 3), fractions(3, 2, 2), fractions(2, 3, 3)])
    cut = TableModel([fractions(0, 2, 3), fractions(2, 1, 0), fractions(0, 1, 1)])
    exact = [step(TARGET, draft).tv for draft in (DRAFT, GREEDY_DRAFT, warm, cut)]
    other = step(TARGET, cut, believed=DRAFT).tv
    return decide(
        max(exact) == 0,
        f"sampled, greedy, warmer and top-2 drafts: TV = {max(exact)}, as long as the test has the law that was drawn "
        f"from; with the uncut rows for top-2 drafts TV = {float(other):.3f}",
    )


# --- caches ----------------------------------------------------------------------------------------------


def caches(gamma: int, accepted: int, *, cut_back: bool = True) -> tuple[int, int, int]:
    """After a step: tokens behind the query in the cache of drafter and scorer, and those the drafter must read next.

    A model that is fed a token caches it. The drafter is fed the query and all drafted tokens but the last, which
    nothing reads; the scorer the query and all of them. `cut_back` drops what was rejected.
    """
    drafter, scorer = gamma - 1, gamma
    if cut_back:
        drafter, scorer = min(drafter, accepted), min(scorer, accepted)
    text = accepted + 1  # the accepted tokens and one more
    return drafter, scorer, text - drafter


def no_token_accepted(most: int = 8) -> Outcome:
    return _cache_case([(gamma, 0) for gamma in range(1, most + 1)], ahead=0, read=1)


def all_tokens_accepted(ahead: int = 1, read: int = 2, most: int = 8) -> Outcome:
    return _cache_case([(gamma, gamma) for gamma in range(1, most + 1)], ahead, read)


def some_tokens_accepted(most: int = 8) -> Outcome:
    return _cache_case([(gamma, n) for gamma in range(2, most + 1) for n in range(1, gamma)], ahead=0, read=1)


def _cache_case(steps: list[tuple[int, int]], ahead: int, read: int) -> Outcome:
    """Whether the scorer's cache is `ahead` of the drafter's, which must read `read` tokens next."""

    def holds(cut_back: bool) -> bool:
        found = [caches(gamma, n, cut_back=cut_back) for gamma, n in steps]
        return all(scorer - drafter == ahead and due == read for drafter, scorer, due in found)

    longest = max(steps)
    drafter, scorer, due = caches(*longest)
    uncut = caches(*longest, cut_back=False)
    return only_if(
        holds(True),
        holds(False),
        f"{'' if holds(False) else 'only if both caches are cut back to what was accepted: '}γ = {longest[0]} with "
        f"{longest[1]} accepted leaves {drafter} drafted tokens in the drafter's cache and {scorer} in the scorer's, and "
        f"{due} to read next; uncut they hold {uncut[0]} and {uncut[1]} ({len(steps)} cases, γ up to {longest[0]})",
    )


def wrong_cache() -> Outcome:
    """A drafter that lost the last token and reads the one before it."""
    near = [fractions(5, 3, 1), fractions(1, 4, 2), fractions(3, 1, 2)]
    right = step(TARGET, TableModel(near))
    wrong = step(TARGET, TableModel([[near[before]] * 3 for before in range(3)]))
    return decide(
        wrong.tv > 0,
        f"a drafter that missed the last token still leaves the target's law (TV = {wrong.tv}), since any draft does as "
        f"long as q is the row drawn from; tokens a step go from {float(right.tokens):.3f} to {float(wrong.tokens):.3f}",
    )


def _ngram_rows(setting: Setting) -> tuple[np.ndarray, np.ndarray]:
    target, draft = default_pair()
    contexts = target.contexts[: setting.contexts]
    return target.rows(contexts), draft.rows(contexts)


CLAIMS: list[Claim] = [
    Claim(
        "naive.length",
        SOURCE,
        "SpeculativeDecodeOut",
        "num_generated_tokens <= num_draft_tokens + 1",
        "the most tokens that a step returns",
        check=lengths,
    ),
    Claim(
        "naive.greedy_match",
        SOURCE,
        "decode",
        "GREEDY_MATCH … legal to combine with any drafter sampling strategy",
        "greedy match is right for any draft",
        check=greedy_match_is_legal,
    ),
    Claim(
        "naive.more_rejections",
        SOURCE,
        "decode",
        "normally leads to more rejections",
        "equal argmaxes are rarer than acceptances by speculative sampling",
        measure=greedy_match_rejects_more,
    ),
    Claim(
        "naive.any_strategy",
        SOURCE,
        "decode",
        "as long as the sampling strategy defines a valid proposal distribution",
        "speculative sampling is right for any way of drafting",
        check=any_strategy_is_legal,
    ),
    Claim(
        "naive.ill_defined",
        SOURCE,
        "decode, greedy drafts",
        "makes the acceptance probability ill-defined",
        "with a certain draft min(1, p/q) has no value",
        check=ill_defined,
    ),
    Claim(
        "naive.always_rejects",
        SOURCE,
        "decode, greedy drafts",
        "rejection always happens for each draft token",
        "a greedy draft never passes speculative sampling",
        measure=always_rejects,
    ),
    Claim(
        "naive.degenerates",
        SOURCE,
        "decode, greedy drafts",
        "degenerates to modified auto-regressive decoding",
        "greedy drafts gain nothing",
        check=degenerates,
    ),
    Claim(
        "naive.removed",
        SOURCE,
        "decode, greedy drafts",
        "the drafted token being removed from the vocabulary",
        "what is sampled after a greedy draft was rejected",
        check=removes_the_token,
    ),
    Claim(
        "naive.cache_none",
        SOURCE,
        "caches, case 1",
        "no token is accepted: … the newly resampled token",
        "both caches hold the query, the new token is read next",
        check=no_token_accepted,
    ),
    Claim(
        "naive.cache_all",
        SOURCE,
        "caches, case 2",
        "all accepted: one token longer than the drafter's kvcache",
        "the drafter must read two tokens next",
        check=all_tokens_accepted,
    ),
    Claim(
        "naive.cache_some",
        SOURCE,
        "caches, case 3",
        "some but not all: the length … is consistent",
        "the caches are of one length, the new token is read next",
        check=some_tokens_accepted,
    ),
    Claim(
        "naive.wrong_cache",
        SOURCE,
        "caches",
        "may lead to wrong generation results",
        "a drafter's stale cache changes what is generated",
        check=wrong_cache,
    ),
    Claim(
        "naive.greedy_quality",
        SOURCE,
        "decode",
        "greedy decoding normally performs worse than random sampling",
        "the quality of greedy text",
        needs="language models, and people or a benchmark to judge their text",
    ),
]
