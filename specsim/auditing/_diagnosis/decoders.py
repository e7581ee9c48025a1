"""Diagnose a decoder: compare the texts of the cases that failed with the predictions of known mistakes.

A mistake of a verifier is one of a loop that verifies so, on the processed rows, with an unknown number of
drafted tokens. To be named it must reproduce texts that have not chosen it, in each case and after each
prompt: longer texts separate mistakes that are alike in short ones.

What a mistake predicts is the distribution of the token after each prefix. The law of a step that tests its
tokens one by one is made of laws of single drafted tokens, of any draft length; other laws are enumerated
draft by draft. Penalties read all of a text, but not in order."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specsim.adapters._contract import BrokenVerifier
from specsim.auditing._cases.battery import DecoderCase, case_key
from specsim.auditing._checks.counts import table_positions
from specsim.auditing._checks.decoder import Processing
from specsim.auditing._checks.subjects import DecoderSubject, Span, count_span
from specsim.auditing._diagnosis import likelihood
from specsim.auditing._diagnosis import posterior as odds
from specsim.auditing._diagnosis.likelihood import LEAST, Prediction
from specsim.auditing._diagnosis.parameters import Values, few_values, marginalise
from specsim.auditing._diagnosis.reproduction import Audited
from specsim.auditing._results.audit import ODDS, CaseResult, Diagnosis
from specsim.core._types import Floats, Ints, Tokens
from specsim.mistakes import Mistake, exact_controls
from specsim.mistakes._decoding import Decoder, RowsOf, in_a_loop, sequence_law
from specsim.models import Model, TableModel
from specsim.rules import get

#: Texts of a mistake whose law is not enumerated, and their key.
SIMULATED, KEY = 2**11, 0x5EED
#: A right decoder, and its parts that may be others where steps test their tokens one by one.
PLAIN = Decoder()
OF_A_TOKEN = "drafting", "verified_q", "verified_p", "bonus", "bonus_of_draft", "processed", "verification"
#: Processed models of target and draft, and their rows after a text, then after each token that follows it.
Models = tuple[Any, Any]
Place = tuple[tuple[Any, Any], ...]


@dataclass(frozen=True)
class Texts:
    """The texts of a case, its processed models, and the `counts` [prefixes, V] of tokens after prefixes."""

    case: DecoderCase
    processed: Models
    counts: Ints
    in_time: odds.Limits

    def compared(self, mistake: Mistake, tokens: int | None = None) -> tuple[Prediction, Ints]:
        """The law of the token after each prefix, and its counts; of the first `tokens`, or of all."""
        length = min(self.case.max_new_tokens, tokens or self.case.max_new_tokens)
        decode, before = decoder_of(mistake), len(prefixes_of(self.case.vocab_size, length))
        models = self.processed if decode.processed else (self.case.target, self.case.draft)
        prediction, laws = _predict(mistake, self.case, models, length)
        self.in_time.spend(laws)
        return prediction, self.counts[:before]


def read_texts(subject: DecoderSubject, case: DecoderCase, prefixes: Ints, in_time: odds.Limits) -> Texts:
    """The texts of a case of one prompt, from the counts of its `prefixes`."""
    processing, given = Processing.of(subject.declared), (len(case.prompts[0]), case.eos)
    models: Models = case.target, case.draft
    target, draft = (process_model(model, processing, *given) for model in models)
    return Texts(case, (target, draft), prefixes.reshape(-1, case.vocab_size), in_time)


def decoder_of(mistake: Mistake) -> Decoder:
    assert isinstance(mistake.decode, Decoder)
    return mistake.decode


@cache
def prefixes_of(size: int, length: int) -> list[Tokens]:
    """All texts of fewer than `length` tokens, shorter ones first."""
    return [prefix for n in range(length) for prefix in product(range(size), repeat=n)]


@lru_cache(maxsize=2**12)  # draft lengths and parameters are fitted in turn, and again after more texts
def _predict(mistake: Mistake, case: DecoderCase, models: Models, length: int) -> tuple[Prediction, int]:
    """The prediction, and the number of laws of steps that it takes."""
    decode, laws = decoder_of(mistake), list[int]()
    if not decode.enumerable:
        texts = _run(mistake, case, models)
        return Prediction.simulated(_after_prefixes(texts, case.vocab_size, length)), SIMULATED
    if by_token(decode):
        alike = replace(mistake, decode=replace(decode, gamma=PLAIN.gamma, overshoots=PLAIN.overshoots))
        law = _compose(decode, case, _of_single_tokens(alike, case, models, length))
        laws.append(law.size)
    else:
        given = case.prompts[0], case.max_new_tokens, case.eos
        p_rows, q_rows = map(_rows_of, models)
        whole = sequence_law(mistake, p_rows, q_rows, *given, length, laws.append)
        law = _after_prefixes(whole, case.vocab_size, length)
    return Prediction(law / np.maximum(law.sum(axis=1, keepdims=True), LEAST)), sum(laws)


def by_token(decode: Decoder) -> bool:
    """Whether its steps test tokens one by one, each by the rows of its own position."""
    free: Any = {name: getattr(PLAIN, name) for name in (*OF_A_TOKEN, "gamma", "overshoots")}
    plain = replace(decode, **free) == PLAIN
    return plain and (decode.verification is None or getattr(decode.verification, "by_token", False))


@lru_cache(maxsize=2**6)  # the same for all mistakes
def _places(case: DecoderCase, models: Models, length: int) -> tuple[list[Place], list[list[int]]]:
    """The different rows after prefixes, and which of these are those after prefixes of 0, 1, … tokens."""
    p_rows, q_rows = map(_rows_of, models)
    found: dict[Place, int] = {}

    def number(text: Tokens) -> int:
        texts = [text, *((*text, x) for x in range(case.vocab_size))]
        place = tuple((p_rows.after(one), q_rows.after(one)) for one in texts)
        return found.setdefault(place, len(found))

    size, prompt = case.vocab_size, case.prompts[0]
    where = [[number((*prompt, *text)) for text in product(range(size), repeat=n)] for n in range(length)]
    return list(found), where


@lru_cache(maxsize=2**10)
def _of_single_tokens(mistake: Mistake, case: DecoderCase, models: Models, length: int) -> list[list[Floats]]:
    """After all prefixes of 0, 1, … tokens: the probabilities of a drafted token that is accepted, and of one
    in place of a rejected one, the laws of the bonus after a drafted token, and those without a draft."""
    decode, values, size = decoder_of(mistake), mistake.values, case.vocab_size
    places, where = _places(case, models, length)
    accepted, recovered, alone = (np.zeros((len(places), size)) for _ in range(3))
    bonus = np.zeros((len(places), size, size))
    for i, ((p, q), *after) in enumerate(places):
        alone[i] = decode.law((), (), (p,), (), **values)[1][0]
        for x, weight in enumerate(decode.drafting(q, **values)):
            if weight:
                given = [q, after[x][1]][: 1 + decode.bonus_of_draft]
                (rejected, passed), (other, bonus[i, x]) = decode.law(
                    (0,), (x,), (p, after[x][0]), given, **values
                )
                accepted[i, x] = weight * passed
                recovered[i] += float(weight * rejected) * np.array(other, dtype=np.float64)
    return [[one[some] for one in (accepted, recovered, bonus, alone)] for some in where]


def _compose(decode: Decoder, case: DecoderCase, of_single: list[list[Floats]]) -> Floats:
    """The probabilities [prefixes, V] of texts by prefix and last token."""
    # masses of texts of n tokens: where a step begins, and where it has 0, 1, … more drafted tokens
    begins, left, found = np.ones(1), np.zeros((decode.gamma + 1, 1)), list[Floats]()
    bonus = np.zeros((1, case.vocab_size))
    for n, (accepted, recovered, bonus_after, alone) in enumerate(of_single):
        drafts = decode.length(case.max_new_tokens - n)
        left[drafts] += begins * (drafts > 0)
        onward = left[1:, :, None] * accepted
        ends = left[1:].sum(axis=0)[:, None] * recovered + left[0][:, None] * bonus
        ends += (begins * (drafts == 0))[:, None] * alone
        found.append(onward.sum(axis=0) + ends)
        if case.eos is not None:
            onward[..., case.eos] = ends[..., case.eos] = 0.0
        begins, left = ends.ravel(), np.zeros((decode.gamma + 1, ends.size))
        left[:-1] = onward.reshape(decode.gamma, -1)
        bonus = bonus_after.reshape(-1, case.vocab_size)
    return np.maximum(np.concatenate(found), 0.0)


def _after_prefixes(texts: Mapping[Tokens, Any], size: int, length: int) -> NDArray[Any]:
    """`texts` have probabilities, or counts."""
    place = {prefix: i for i, prefix in enumerate(prefixes_of(size, length))}
    found = np.zeros((len(place), size), dtype=np.int64 if isinstance(texts, Counter) else np.float64)
    for text, mass in texts.items():
        for i, token in enumerate(text[:length]):
            found[place[text[:i]], token] += max(mass, 0)
    return found


@cache  # the same for the first tokens and for all, and after more texts
def _run(mistake: Mistake, case: DecoderCase, models: Models) -> Counter[Tokens]:
    """The texts of a decoder whose law is not enumerated."""
    given = (*models, case.prompts[0], case.max_new_tokens, case.eos)
    texts = (mistake.function(*given, np.random.default_rng([KEY, number])) for number in range(SIMULATED))
    return Counter(map(tuple, texts))


_rows_of = lru_cache(maxsize=2**6)(RowsOf)


@dataclass(frozen=True, eq=False)
class _OfTexts:
    """A model whose rows depend on the last `order` tokens, and on the set of tokens before them."""

    processed: Callable[[Tokens], Any]
    order: int
    prompt: int
    reads_all = True

    def context(self, text: Tokens) -> Tokens:
        old = sorted(text[self.prompt : len(text) - self.order])
        return (*text[: self.prompt], *old, *text[self.prompt + len(old) :])

    def row(self, text: Tokens) -> Any:
        return self.processed(self.context(text))


@cache
def process_model(model: Model, processing: Processing, given: int, eos: int | None) -> Any:
    """`model` with its rows processed, of texts with a prompt of `given` tokens."""
    if processing.of_texts:

        @cache
        def row(text: Tokens) -> Any:
            texts = np.array([text], dtype=np.int32)
            return processing.after(texts, model.rows(texts), given, eos)[0].tolist()

        return _OfTexts(row, max(model.order, 1), given)
    size, order = model.vocab_size, model.order
    contexts = np.indices((size,) * order).reshape(order, size**order).T.astype(np.int32)
    return TableModel(processing.rows(model.rows(contexts)).reshape((size,) * (order + 1)), contexts[:1])


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
    if not (chosen := [result.case for result in worst if result.case in whole][:CASES]):
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
        spans = [Span(name, case_key(root, f"diagnosis, {name}"), done, steps - done) for name in chosen]
        try:
            new = [count_span(subject, span, in_time).counts["prefixes"][0] for span in spans]
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
        return any(_reproduces(each, audited) for each in [one, *_of_all_lengths(one, audited, MORE_DRAFTS)])

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
    if any(isinstance(one.processed[0], _OfTexts) for one in seen) and not by_token(decode):
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
