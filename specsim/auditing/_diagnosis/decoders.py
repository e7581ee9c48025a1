"""Diagnose a decoder: compare the texts of the cases that failed with the predictions of known mistakes.

A mistake of a verifier is one of a loop that verifies so, on the processed rows, with an unknown number of
drafted tokens. To be named it must reproduce texts that have not chosen it, in each case and after each
prompt: longer texts separate mistakes that are alike in short ones."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from specsim.adapters._contract import BrokenVerifier
from specsim.auditing._cases.battery import DecoderCase, case_key
from specsim.auditing._checks.counts import table_positions
from specsim.auditing._checks.subjects import DecoderSubject, Span, count_span
from specsim.auditing._diagnosis import likelihood
from specsim.auditing._diagnosis import posterior as odds
from specsim.auditing._diagnosis.parameters import Values, few_values, marginalise
from specsim.auditing._diagnosis.reproduction import Audited
from specsim.auditing._diagnosis.texts import Texts, by_token, decoder_of, prefixes_of, read_texts
from specsim.auditing._results.audit import ODDS, CaseResult, Diagnosis
from specsim.core._types import Ints
from specsim.mistakes import Mistake, exact_controls
from specsim.mistakes._decoding import Decoder, in_a_loop
from specsim.rules import get

#: Drafted tokens that a decoder may use.
LENGTHS = (1, 2, 3, 4, 8)
#: The most drafts of a step that drafts beyond the end of the text, and where a name is tested.
DRAFTS, MORE_DRAFTS = 512, 4096
#: The most where all of a text is its context, unless tokens are tested one by one.
DRAFTS_AFTER_TEXTS = 32
#: Texts of each case after which the mistakes are ranked.
SEGMENTS = (2**12, 2**14)
#: Texts of each case, at least, which a mistake must reproduce to be named.
REPRODUCED = 2**12
#: The most cases that are used.
CASES = 2
#: Tokens of a text that are looked at first, values of a parameter, and the nats behind the likeliest from
#: which on a mistake is then dropped.
FIRST, FEW, FAR_AT_FIRST = 2, 8, 150.0
#: Draft lengths that are looked at first, and the nats behind on whole texts from which on a mistake is
#: dropped before its parameters are fitted.
FIRST_LENGTHS, FAR_WITHOUT_FIT = (2, 4), 300.0
#: Values of a parameter where whole texts are looked at, besides those round the likeliest, and rounds of
#: fitting draft length and parameters in turn.
POINTS, ROUNDS = 12, 2
#: Total variations of another mistake's rows from those of a known one: so many texts show no smaller ones.
NEAR = (0.03, 0.1, 0.3)
#: Mistakes of verifiers that the catalogue has as mistakes of decoders too.
TWINS = ("bonus_temperature", "bonus_min_p", "rejects_one_late")
#: Exact decoders: two rules, and those that accept less.
EXACT = (
    Mistake(name="standard", family="exact", mechanism="", decode=Decoder()),
    Mistake(name="block", family="exact", mechanism="", decode=Decoder(verification=get("block").law)),
    *(one for one in exact_controls() if one.decode is not None),
)


def diagnose_decoder(audited: Audited, known: Sequence[Mistake]) -> Diagnosis | None:
    subject, root, in_time = audited.subject, audited.root, audited.in_time
    whole = [case.name for case in subject.cases if _enumerable(case) and len(case.prompts) == 1]
    # the longer the texts, the longer it takes to enumerate them
    worst = sorted(audited.failed, key=lambda result: (result.positions, -result.largest_log10_e))
    chosen = [result.case for result in worst if result.case in whole][:CASES]
    if not chosen:
        return odds.conclude(None, 0, "No case that failed has texts whose distribution can be enumerated.")
    mistakes = [
        in_a_loop(one)
        for one in known
        if one.name not in TWINS and (one.decode is not None or one.law is not None)
    ]
    number, done = len(mistakes), 0
    simulated = [one for one in mistakes if not decoder_of(one).enumerable]
    mistakes = [one for one in mistakes if decoder_of(one).enumerable]
    prefixes: list[Ints] = []
    for steps in SEGMENTS:
        keys = [case_key(root, f"diagnosis, {name}") for name in chosen]
        try:
            new = [
                count_span(subject, Span(name, key, done, steps - done), in_time).counts["prefixes"][0]
                for name, key in zip(chosen, keys, strict=True)
            ]
        except BrokenVerifier:
            return None
        prefixes = [a + b for a, b in zip(prefixes, new, strict=True)] if prefixes else new
        done = steps
        seen = [
            read_texts(subject, subject.case(name), of_case, in_time)
            for name, of_case in zip(chosen, prefixes, strict=True)
        ]
        scored, exact = _rank(mistakes, seen, in_time)
        mistakes = [one.mistake for one in scored]
        found = odds.posterior(scored, exact, number)
        if found.settled:
            break
    if not found.named:  # only now those that take longest
        best = max((one.log_likelihood for one in [*scored, *exact]), default=-math.inf)
        if near_best := [one for one in simulated if _is_near(one, seen, best)]:
            scored = odds.drop_far([*scored, *_rank(near_best, seen, in_time)[0]])
            found = odds.posterior(scored, exact, number)
    if found.named:
        texts = [one for result in audited.results for one in audited_texts(subject, result, root, in_time)]

        def reproduced(one: odds.Scored) -> Mistake | None:
            return None if refuted(one.mistake, texts) else one.mistake

        found = odds.reproducing(scored, exact, number, reproduced)
    evidence = _evidence(found.named[0][0], seen) if found.named else ""
    return odds.conclude(found, done * len(seen), shown=(evidence, ""))


def refuted(mistake: Mistake, audited: Sequence[Texts]) -> bool:
    """Whether the texts of an audit refute `mistake` at the level of `ODDS`, whatever its parameters."""

    def fits(one: Mistake) -> bool:
        shapes = [one, *_of_all_lengths(one, audited, MORE_DRAFTS)]
        return any(_reproduces(each, audited) for each in shapes)

    return not (fits(mistake) or (mistake.parameters and fits(_score(mistake, audited).mistake)))


def _reproduces(mistake: Mistake, audited: Sequence[Texts]) -> bool:
    """Whether the texts fit in each case, and in all together."""
    tables = []
    for one in audited:
        tables.append(one.compared(mistake))
        if likelihood.fit(tables[-1:]) * 2 * len(audited) * ODDS < 1.0:
            return False
    return likelihood.fit(tables) * 2 * ODDS >= 1.0


def _enumerable(case: DecoderCase) -> bool:
    return table_positions(case) == case.max_new_tokens and not case.reads_all


def audited_texts(
    subject: DecoderSubject, result: CaseResult, root: int, in_time: odds.Limits
) -> list[Texts]:
    """The texts of a case after each prompt, if they are enumerated; new ones where the audit has few."""
    case = subject.case(result.case)
    if not _enumerable(case):
        return []
    counts = result.counts
    if result.findings or result.steps < REPRODUCED:
        key = case_key(root, f"reproduction, {case.name}")
        counts = count_span(subject, Span(case.name, key, 0, REPRODUCED), in_time).counts
    prompts = zip(case.prompts, counts["prefixes"], strict=True)
    return [
        read_texts(subject, replace(case, prompts=(prompt,)), texts, in_time) for prompt, texts in prompts
    ]


def _rank(mistakes: Sequence[Mistake], seen: Sequence[Texts], in_time: odds.Limits) -> odds.Ranked:
    """The mistakes near the likeliest, and the exact decoders; those far behind at first are not scored."""
    stages: Any = [
        (partial(_at_first, seen=seen[:1]), FAR_AT_FIRST),
        (lambda one: odds.likeliest_of(_by_shape(one, seen)), FAR_WITHOUT_FIT),
        (partial(_score, seen=seen), odds.FAR),
    ]
    return odds.ranked(odds.narrow([*mistakes, *EXACT], stages, in_time))


def _is_near(mistake: Mistake, seen: Sequence[Texts], best: float) -> bool:
    """Whether the likelihood of the texts comes near `best` with a usual draft length."""
    shapes = [one for one in _of_all_lengths(mistake, seen) if decoder_of(one).gamma in FIRST_LENGTHS]
    return any(best - _likelihood(one, seen) <= FAR_WITHOUT_FIT for one in shapes)


def _at_first(mistake: Mistake, seen: Sequence[Texts]) -> odds.Scored:
    """The likeliest for the first tokens, of a few draft lengths and values of a parameter."""
    decode = decoder_of(mistake)
    shapes = [replace(mistake, decode=replace(decode, gamma=gamma)) for gamma in FIRST_LENGTHS]
    tried = [one.with_parameters(**values) for one in shapes for values in few_values(one.parameters, FEW)]
    return odds.likeliest_of(odds.Scored(one, _likelihood(one, seen, FIRST), -math.inf) for one in tried)


def _by_shape(mistake: Mistake, seen: Sequence[Texts]) -> list[odds.Scored]:
    """The log-likelihood of the texts for each draft length, with drafts beyond the end and without."""
    return [odds.Scored(one, _likelihood(one, seen), -math.inf) for one in _of_all_lengths(mistake, seen)]


def _of_all_lengths(mistake: Mistake, seen: Sequence[Texts], drafts: int = DRAFTS) -> list[Mistake]:
    longest = max(max(one.case.max_new_tokens for one in seen) - 1, 1)  # a longer draft is never used
    size = max(one.case.vocab_size for one in seen)
    decode = decoder_of(mistake)
    if any(one.reads_all for one in seen) and not by_token(decode):
        drafts = DRAFTS_AFTER_TEXTS
    shapes = [(gamma, False) for gamma in sorted({min(gamma, longest) for gamma in LENGTHS})]
    shapes += [(gamma, True) for gamma in LENGTHS if size**gamma <= drafts]
    return [
        replace(mistake, decode=replace(decode, gamma=gamma, overshoots=beyond)) for gamma, beyond in shapes
    ]


def _score(mistake: Mistake, seen: Sequence[Texts]) -> odds.Scored:
    """`mistake` with the likeliest draft length and parameters, each at the other's optimum."""

    def likelihood_of(values: Values) -> float:
        return _likelihood(likeliest.mistake.with_parameters(**values), seen)

    lengths = _by_shape(mistake, seen)
    likeliest = odds.likeliest_of(lengths)
    mean = likeliest.log_likelihood
    for _ in range(ROUNDS if mistake.parameters else 0):
        tried = likeliest.mistake
        mean, values = marginalise(tried.parameters, likelihood_of, POINTS)
        lengths = _by_shape(tried.with_parameters(**values), seen)
        likeliest = odds.likeliest_of(lengths)
        if likeliest.mistake.decode == tried.decode:
            break
    mean += likelihood.log_mean_exp([one.log_likelihood for one in lengths]) - likeliest.log_likelihood
    # what is unknown of the parameters is so for the laws near by too
    best = likeliest.mistake
    near = sum(likelihood.log_near(*one.compared(best), NEAR) for one in seen)
    return odds.Scored(best, mean, near + mean - likeliest.log_likelihood)


def _likelihood(mistake: Mistake, seen: Sequence[Texts], tokens: int | None = None) -> float:
    return sum(likelihood.log_likelihood(*one.compared(mistake, tokens)) for one in seen)


def _evidence(best: odds.Scored, seen: Sequence[Texts]) -> str:
    """The token after a prefix that best separates the mistake from an exact decoder."""
    gains = []
    for one in seen:
        prediction, counts = one.compared(best.mistake)
        here, right = prediction.law, one.compared(EXACT[0])[0].law
        gain = counts * np.log(np.maximum(here, 1e-12) / np.maximum(right, 1e-12))
        cell = np.unravel_index(int(gain.argmax()), gain.shape)
        shares = counts[cell] / counts[cell[0]].sum(), float(here[cell]), float(right[cell])
        prefix = prefixes_of(one.case.vocab_size, one.case.max_new_tokens)[cell[0]]
        gains.append((float(gain[cell]), one.case.name, prefix, int(cell[1]), shares))
    _, name, prefix, token, (share, predicted, exact) = max(gains)
    return (
        f"Evidence (case {name!r}): {100 * share:.4g} % of the tokens after {list(prefix)} were {token} "
        f"(this bug: {100 * predicted:.4g} %; an exact decoder: {100 * exact:.4g} %)."
    )
