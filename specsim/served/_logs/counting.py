"""What is counted of served responses, and the tables that it gives."""

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy

from specsim.core._streams import Purpose, key_of, uniforms
from specsim.core._types import Ints
from specsim.core.stats import chi_square, detectable_tv, log_e_value
from specsim.served._logs.conditions import Conditions, unseen_tokens
from specsim.served._logs.formats import Text, read_texts
from specsim.served._logs.places import (
    Lists,
    Row,
    batches,
    contradictions,
    images,
    is_argmax,
    is_impossible,
)
from specsim.served._logs.result import BINS, LEVEL, PLACES, POSITIONS, RARE, RareTokens, ServedTable

#: Unreadable lines that are named.
NAMED = 5
WRONG_INPUT = (ValueError, TypeError, KeyError, AttributeError, IndexError, OverflowError, RecursionError)


class Counts:
    """What is counted of the lines read so far."""

    def __init__(self, conditions: Conditions, tolerance: float, root: int) -> None:
        self.conditions, self.tolerance, self.key = conditions, tolerance, key_of(root)
        self.lists = Lists(tolerance)
        self.bins = np.zeros((PLACES, BINS), dtype=np.int64)
        self.steps = np.zeros((POSITIONS, BINS), dtype=np.int64)
        self.rare = np.zeros(len(RARE), dtype=np.int64)
        self.unseen, self.unseen_steps = np.zeros(PLACES, dtype=np.int64), 0
        self.all_unseen = self.drawn = self.responses = self.texts = 0
        self.impossible = self.greedy = self.not_greedy = self.unreadable = 0
        self.wrong: dict[str, tuple[int, str]] = {}
        self.left_out, self.left_places = Counter[str](), Counter[str]()
        self.named: list[str] = []

    def read(self, place: str, record: Any, problem: str) -> None:
        """Add a line; one that is no response counts as unreadable, whatever of it could be read."""
        if not problem:
            try:
                texts = list(read_texts(record))
                greedy = [self.conditions.greedy(text) for text in texts]
            except WRONG_INPUT as error:
                problem = _reason(error)
        if problem:
            self.unreadable += 1
            self.named += [f"{place}: {problem}"] * (len(self.named) < NAMED)
            return
        self.responses += 1
        for text, cold in zip(texts, greedy, strict=True):
            self._add(text, cold, place)

    def _add(self, text: Text, greedy: bool, place: str) -> None:
        why = self.conditions.objection(text, place)
        for what, number in contradictions(text, self.tolerance, greedy):
            places, first = self.wrong.get(what, (0, place))
            self.wrong[what] = places + number, first
            why = "log-probabilities that contradict themselves"
        if why:
            self._leave_out(why, text)
            return
        assert text.places is not None
        if greedy:
            self.greedy += len(text.places)
            self.not_greedy += sum(not is_argmax(one, self.tolerance) for one in text.places)
            return
        rows = self.lists.rows(text)
        if rows is None:
            self._leave_out("lists of strings that are those of several tokens; log the ids", text)
        else:
            self._count(text, rows)

    def _leave_out(self, why: str, text: Text) -> None:
        self.left_out[why] += 1
        self.left_places[why] += len(text.places or ())

    def _count(self, text: Text, rows: list[Row]) -> None:
        assert text.places is not None
        self.texts += 1
        self.impossible += sum(map(is_impossible, text.places))
        number = np.arange(len(text.places))
        places = np.minimum(_bit_lengths(number), PLACES - 1)
        positions = _positions(text, len(number))
        for part, batch in batches(rows):
            u = uniforms(self.key, int(Purpose.COUNT), self.drawn, len(batch.p), 1)[0]
            self.drawn += len(batch.p)
            image, testable = images(batch, u)
            bins = np.minimum((image * BINS).astype(np.int64), BINS - 1)
            np.add.at(self.bins, (places[part][testable], bins[testable]), 1)
            known = testable & (positions[part] >= 0)
            np.add.at(self.steps, (positions[part][known], bins[known]), 1)
            for i, probability in enumerate(RARE):
                self.rare[i] += int((image[testable] >= 1 - probability).sum())
            if not testable.all():
                self.left_places["lists too short, or with tokens that read alike"] += int((~testable).sum())
        self._add_unseen(unseen_tokens(text), len(number), bool((positions >= 0).any()))

    def _add_unseen(self, unseen: int, length: int, steps: bool) -> None:
        if unseen:
            ends = _bit_lengths(np.array([length, length + unseen - 1]))
            self.unseen[np.unique(np.minimum(ends, PLACES - 1))] += unseen
            self.all_unseen += unseen
            self.unseen_steps += unseen * steps

    def tables(self) -> Iterator[ServedTable]:
        """The tables that have counts."""
        whole = self.bins.sum(axis=0)
        if whole.any():
            yield self._table("all", whole, self.all_unseen)
        for i, counts in enumerate(self.bins):
            if counts.any():
                yield self._table(_name("place", *_ends(i)), counts, int(self.unseen[i]))
        for i, counts in enumerate(self.steps):
            if counts.any():
                last = None if i == POSITIONS - 1 else i + 1
                yield self._table(_name("position in the step", i + 1, last), counts, self.unseen_steps)

    def _table(self, name: str, counts: Ints, unseen: int) -> ServedTable:
        law, tolerance = np.full(BINS, 1 / BINS), (BINS + 1) * self.tolerance
        n, filled = int(counts.sum()), _level(counts, unseen)
        log_e = log_e_value(filled, law, tolerance) / math.log(10)
        detectable = detectable_tv(BINS, n, LEVEL) + math.tanh(tolerance / 2) + unseen / n
        p_value = chi_square(filled, law).p_value
        return ServedTable(name, tuple(counts.tolist()), unseen, log_e, p_value, min(1.0, detectable))

    def rare_tokens(self) -> Iterator[RareTokens]:
        """The exact binomial tests; an unseen token may or may not have been rare."""
        n = int(self.bins.sum())
        if n:
            for probability, emitted in zip(RARE, self.rare.tolist(), strict=True):
                yield RareTokens(probability, emitted, n, self._rare_p_value(probability, emitted, n))

    def _rare_p_value(self, probability: float, emitted: int, n: int) -> float:
        most = min(1.0, probability * math.exp(self.tolerance) + self.tolerance)
        least = max(0.0, probability * math.exp(-self.tolerance) - self.tolerance)
        total = n + self.all_unseen
        upper = scipy.stats.binom.sf(emitted - 1, total, most)
        lower = scipy.stats.binom.cdf(emitted + self.all_unseen, total, least)
        return float(min(1.0, 2 * min(upper, lower)))


def _reason(error: Exception) -> str:
    """Why a line is no response, without what the line says at length."""
    if isinstance(error, KeyError):
        return f"no field {ascii(error.args[0])[:80]}"
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, ValueError):
        return ascii(str(error))[1:-1][:200]
    return "a field is not of the kind that servers write"


def _level(counts: Ints, unseen: int) -> Ints:
    """`counts` with `unseen` more, which make them as equal as possible."""
    filled = np.sort(counts)
    sizes = np.arange(1, len(filled) + 1)
    need = sizes * filled - np.cumsum(filled)  # to fill the lowest up to each
    many = int(np.searchsorted(need, unseen, side="right"))
    total = int(filled[:many].sum()) + unseen
    share, rest = divmod(total, many)
    filled[:many] = share
    filled[:rest] += 1
    return filled


def _positions(text: Text, length: int) -> Ints:
    """The position of each token in its step, from 0; -1 where it is not known."""
    unknown = np.full(length, -1, dtype=np.int64)
    if not text.accepted:
        return unknown
    emitted = [accepted + 1 for accepted in text.accepted]
    if not 1 <= length - 1 - sum(emitted[:-1]) <= emitted[-1]:  # some tokens come from no counted step
        return unknown
    found = np.concatenate([[-1], *(np.arange(min(number, length)) for number in emitted)])[:length]
    return np.minimum(found, POSITIONS - 1)


def _bit_lengths(numbers: Ints) -> Ints:
    """The number of binary digits of integers ≥ 0."""
    return np.frexp(numbers.astype(np.float64))[1].astype(np.int64)


def _ends(i: int) -> tuple[int, int | None]:
    """The first and the last place of class i; None for the open end."""
    first = 1 if i == 0 else 2 ** (i - 1) + 1
    return first, None if i == PLACES - 1 else 2**i


def _name(kind: str, first: int, last: int | None) -> str:
    if last is None:
        return f"{kind} {first:,} and on"
    return f"{kind} {first:,}" if first == last else f"{kind} {first:,} – {last:,}"
