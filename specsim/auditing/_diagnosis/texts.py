"""What a known mistake of decoders predicts of texts: the distribution of the token after each prefix.

The law of a step that tests its tokens one by one is made of laws of single drafted tokens, of any draft
length; other laws are enumerated draft by draft. Penalties read all of a text, but not in order."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specsim.auditing._cases.battery import DecoderCase
from specsim.auditing._checks.decoder import Processing
from specsim.auditing._checks.subjects import DecoderSubject
from specsim.auditing._diagnosis.likelihood import LEAST, Prediction
from specsim.auditing._diagnosis.posterior import Limits
from specsim.core._types import Floats, Ints, Tokens
from specsim.mistakes import Mistake
from specsim.mistakes._decoding import Decoder, RowsOf, sequence_law
from specsim.models import Model, TableModel

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
    in_time: Limits

    def compared(self, mistake: Mistake, tokens: int | None = None) -> tuple[Prediction, Ints]:
        """The law of the token after each prefix, and its counts; of the first `tokens`, or of all."""
        length = min(self.case.max_new_tokens, tokens or self.case.max_new_tokens)
        decode, before = decoder_of(mistake), len(prefixes_of(self.case.vocab_size, length))
        models = self.processed if decode.processed else (self.case.target, self.case.draft)
        prediction, laws = _predict(mistake, self.case, models, length)
        self.in_time.spend(laws)
        return prediction, self.counts[:before]

    @property
    def reads_all(self) -> bool:
        """Whether all of a text is its context."""
        return isinstance(self.processed[0], _OfTexts)


def read_texts(subject: DecoderSubject, case: DecoderCase, prefixes: Ints, in_time: Limits) -> Texts:
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
