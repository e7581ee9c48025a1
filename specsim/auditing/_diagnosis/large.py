"""Diagnosis of a verifier that goes wrong over many ids, or in large calls, alone.

Over many ids, given what came before it, each token of a case of changing shape has the law of a single row,
of a bonus or not. Images of tokens lie in the bins of the audit by the kind of their row, and an audit knows
the rows that each step had. In large calls, the tokens of a diagnostic case become ids that are spread over a
large vocabulary, whose other ids have no mass: the law of a step is that of the small case, and the call has
the shape of those that failed."""

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache, partial
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from specsim.auditing._cases.battery import Case, case_key
from specsim.auditing._cases.shapes import ShapedRows, ShapesCase
from specsim.auditing._checks.counts import PIT_BINS, OutcomeTally
from specsim.auditing._checks.shapes import ShapesTally
from specsim.auditing._checks.subjects import Span, count_span, verifier_steps
from specsim.auditing._checks.tables import Bins
from specsim.auditing._diagnosis import posterior as odds
from specsim.auditing._diagnosis.likelihood import Prediction, log_likelihood, log_mean_exp
from specsim.auditing._diagnosis.reproduction import Audited, count_steps, flat
from specsim.auditing._results.audit import CALLS, ODDS
from specsim.auditing._verifier.arrays import read_tokens
from specsim.auditing._verifier.calls import VerifierSource
from specsim.auditing._verifier.requests import RowsAsked
from specsim.core._streams import Key
from specsim.core._types import Floats, Ints, TokenArray
from specsim.mistakes import Mistake
from specsim.mistakes._reference import drawing, verify
from specsim.mistakes._rows import PARTS, Pair, Parts, excess, ratio, target

#: Ids from which on there are many.
MANY = 1000
#: Points of a grid of parameters, and the total variations that some thousand tokens of each kind can tell.
POINTS, TOLD = 16, (0.03, 0.1, 0.3)


class Steps(NamedTuple):
    """The rows of steps over `ids` ids: places [B, γ+1] in the bank, and the number of drafted tokens [B]."""

    ids: int
    places: NDArray[np.int32]
    drafted: Ints


@dataclass(frozen=True, eq=False)
class Seen:
    """Images of the tokens of each kind of row [K, bins], in one order, and the steps of the case.

    Impossible tokens have no image."""

    name: str
    case: ShapesCase
    order: int
    counts: Ints
    steps: list[Steps]
    impossible: int = 0

    @cached_property
    def banks(self) -> dict[int, tuple[Pair, list[Bins]]]:
        found = {}
        for ids in {one.ids for one in self.steps}:
            bank = self.case.bank(ids)
            bins = [Bins(*one, PIT_BINS) for one in zip(bank.p, bank.below[self.order], strict=True)]
            found[ids] = Pair(bank.p, bank.q), bins
        return found

    def _compared(self, bins: Floats, possible: float = 1.0) -> odds.Seen:
        """The counts under laws of images, and the impossible tokens, if there are any, under their share."""
        support = Prediction(np.array([[possible, 1.0 - possible]]))
        both = [(support, np.array([[self.counts.sum(), self.impossible]]))]
        return [(Prediction(bins), self.counts), *both[: self.impossible]]

    @property
    def right(self) -> odds.Seen:
        return self._compared(np.full(self.counts.shape, 1.0 / PIT_BINS))

    def under(self, mistake: Mistake, parts: Parts) -> odds.Seen:
        """The images under the law of a mistake, of tokens that are reached as often as its chances say."""
        found, reached, values = np.zeros(self.counts.shape), 0.0, tuple(mistake.values.items())
        # a part that reads no values is computed once for all of them
        of_first = () if (parts.accepted, parts.recovered) == (ratio, excess) else values
        of_bonus = () if parts.bonus is target else values
        for ids in self.banks:
            first, shares = _of_first(self, ids, parts.accepted, parts.recovered, of_first)
            reached += shares.sum()
            for of, images in zip(shares, (first, _of_bonus(self, ids, parts.bonus, of_bonus)), strict=True):
                found += of[:, None] * images
        return self._compared(found / found.sum(axis=1, keepdims=True), found.sum() / reached)


@lru_cache(maxsize=2**10)  # versions of a mistake share them
def _of_first(seen: Seen, ids: int, accepted: Any, recovered: Any, values: Any) -> tuple[Floats, Floats]:
    """The images [K, bins] of drafted places, and the shares of places."""
    pair, bins = seen.banks[ids]
    laws, chance = Parts(accepted, recovered).of_first(pair, **dict(values))
    passed = (pair.q * chance).sum(axis=1)
    shares: Floats = np.sum([_shares(one, passed) for one in seen.steps if one.ids == ids], axis=0)
    return np.array([one.of(law) for one, law in zip(bins, laws, strict=True)]), shares


@lru_cache(maxsize=2**10)
def _of_bonus(seen: Seen, ids: int, bonus: Any, values: Any) -> Floats:
    pair, bins = seen.banks[ids]
    laws = Parts(bonus=bonus).of_bonus(pair.p, **dict(values))
    return np.array([one.of(law) for one, law in zip(bins, laws, strict=True)])


def _shares(steps: Steps, accepted: Floats) -> Floats:
    """How many drafted places, and bonuses, [2, K], are reached of each kind of row."""
    at, reached = np.arange(steps.places.shape[1]), np.ones(steps.places.shape)
    reached[:, 1:] = accepted[steps.places[:, :-1]].cumprod(axis=1)
    masks = at < steps.drafted[:, None], at == steps.drafted[:, None]
    size = len(accepted)
    return np.array([np.bincount(steps.places[one], reached[one], minlength=size) for one in masks])


def seen_in(audited: Audited) -> Seen | None:
    """The tokens of the planned steps of the failed case of changing shape that has fewest ids.

    A case in which nothing but impossible tokens shows comes last, and then has the shapes of a server. Where
    others of many ids failed, the smallest one of a server; else None."""
    failed = {one.case for one in audited.failed}
    vague = {one.case for one in audited.failed if not any(table.rejected for table in one.tables)}
    cases = [case for case in audited.subject.cases if isinstance(case, ShapesCase)]
    among = [case for case in cases if case.name in failed]
    if not among and max(one.vocab_size for one in audited.failed) >= MANY:
        among = [case for case in cases if case.together]
    if not among:
        return None
    among.sort(key=lambda one: (one.name in vague and not one.together, sum(one.vocab_sizes)))
    case = min(among, key=lambda one: one.name in vague)
    key, before = case_key(audited.root, case.name), {one.case: one for one in audited.results}.get(case.name)
    done = before.steps if before else 0
    steps = max(done, before.planned) if before else verifier_steps(case, audited.level)
    counts = count_span(audited.subject, Span(case.name, key, done, steps - done), audited.in_time).counts
    if before:
        counts = {name: counts[name] + before.counts[name] for name in ("images", "impossible")}
    begin = ShapesTally(case).axes.first("kind of row")
    images = counts["images"][begin : begin + len(case.kinds)]
    even = images.sum(axis=2, keepdims=True) / PIT_BINS
    clearest = int(((images - even) ** 2 / np.maximum(even, 1.0)).sum(axis=(0, 2)).argmax())
    impossible = int(counts["impossible"].sum())
    return Seen(case.name, case, clearest, images[:, clearest], list(_steps(case, key, steps)), impossible)


def _steps(case: ShapesCase, key: Key, steps: int) -> Iterator[Steps]:
    found: dict[tuple[int, int], list[ShapedRows]] = defaultdict(list)
    for block, start, number in case.blocks(key, 0, steps):
        found[block.vocab_size, block.gamma].append(case.rows(key, block, start, number))
    for (ids, gamma), some in found.items():
        drafted = [np.full(len(one.places), gamma) if one.lengths is None else one.lengths for one in some]
        yield Steps(ids, np.concatenate([one.places for one in some]), np.concatenate(drafted))


@cache
def versions(mistake: Mistake) -> list[tuple[Mistake, Parts]]:
    """`mistake` and its parts, then those of its versions, whose verifier draws the last token from these."""
    own, *others = PARTS[mistake.name]
    found = [(mistake, own)]
    for one in others:
        said = mistake.mechanism + one.said
        found.append((replace(mistake, mechanism=said, verify=partial(verify, **drawing(one))), one))
    return found


def score(mistake: Mistake, seen: Seen) -> odds.Scored:
    """`mistake` in its likeliest version; each is as probable as the others."""
    found, right = list[odds.Scored](), log_likelihood(*seen.right[0])
    for one, parts in versions(mistake):
        under = partial(seen.under, parts=parts)
        best = odds.fitted(one, one.parameters, under, POINTS, TOLD)
        # impossible tokens alone tell no mistake: a parameter can fit any number of them
        shows = log_likelihood(*under(best.mistake)[0]) > right + math.log(ODDS)
        found.append(best if shows else replace(best, log_likelihood=-math.inf))
    best, mean = odds.likeliest_of(found), log_mean_exp([one.log_likelihood for one in found])
    if mean == -math.inf:
        return best
    return replace(best, log_likelihood=mean, near=best.near + mean - best.log_likelihood)


#: The cases, and the most steps of each, and ids in one row of all its steps; those of cases in small calls,
#: and those with seeds, of which each may cost a generator.
CASES, STEPS, IDS = ("diagnosis, zeros", "diagnosis, moving rows"), 2**12, 2**27
FURTHER_STEPS, UNEVEN_STEPS, SEEDED_STEPS = 2**17, 2**15, 2**15
#: The most numbers in p and q of a call, as in the cases of a server, and those of a step for each id.
NUMBERS, OF_A_STEP = 10**8, 7
#: The key of their random numbers.
KEY = (0x5EED, 0x1A46)


@dataclass(frozen=True)
class LargeCalls(VerifierSource):
    """The steps of a small case of chains, in calls of `rows` rows over `ids` ids."""

    rows: int = 1
    ids: int = 0

    @cached_property
    def places(self) -> Ints:
        """The id of each token of the case."""
        size = self.case.vocab_size
        return np.arange(size) * (self.ids // size) + self.ids // (2 * size)

    def rows_of_a_call(self, steps: int) -> int:
        return min(self.rows, self.declared.batch or self.rows, steps)

    def _asked(self, rows: Any, *given: Any) -> RowsAsked:
        asked = super()._asked(rows, *given)
        asked.arrays["draft_tokens"] = self.places[rows.draft_tokens]
        return asked

    def _bank(self, name: str, p: NDArray[Any] | None, q: NDArray[Any]) -> dict[str, NDArray[Any]]:
        if name not in self.banks:
            small = super()._bank(name, p, q)
            large = {of: np.zeros((len(array), self.ids), array.dtype) for of, array in small.items()}
            for of, array in small.items():
                large[of][:, self.places] = array
            self.banks[name] = large
        return self.banks[name]

    def _read(self, asked: RowsAsked, rows: Any) -> tuple[TokenArray, Ints]:
        tokens = np.full(self.ids + 1, self.case.vocab_size)  # an id without mass is no token
        tokens[self.places], tokens[-1] = np.arange(self.case.vocab_size), -1
        answers = [tokens[answer.clip(-1, self.ids - 1)] for answer in self.callee.read(asked)]
        lengths = asked.arrays.get("lengths")
        return read_tokens(answers, rows.draft_tokens, lengths, self.case.vocab_size, asked.first)


@dataclass(frozen=True)
class Seeded(VerifierSource):
    """Steps with a seed each, or without seeds."""

    seeded: bool = True

    def extras(self, key: Key, first: int, rows: Any) -> dict[str, Any]:
        begin = (crc32(self.case.name.encode()) << 20) + first
        seeds = [begin + s if self.seeded else None for s in range(len(rows.draft_tokens))]
        return super().extras(key, first, rows) | {"seeds": seeds}


@dataclass(frozen=True)
class Uneven(VerifierSource):
    """Steps in calls with room for one drafted token more, each before a row that has it and one without any.

    Behind a draft its last token stands again. The answers to the rows between are checked and dropped."""

    def rows_of_a_call(self, steps: int) -> int:
        return 3 * max(1, super().rows_of_a_call(3 * steps) // 3)

    def _asked(self, *given: Any) -> RowsAsked:
        asked, gamma = super()._asked(*given), self.case.gamma
        arrays = {"lengths": (asked.arrays["lengths"][:, None] + [0, 1, -gamma]).ravel()}
        for name, array in asked.arrays.items():
            if name in ("draft_tokens", "places", "p", "q"):
                array = np.concatenate([array, array[:, gamma - 1, None]], axis=1).repeat(3, axis=0)
            arrays.setdefault(name, array)
        seeds = asked.seeds and [seed for one in asked.seeds for seed in (one, None, None)]
        return replace(asked, arrays=arrays, seeds=seeds, width=asked.width + 1)

    def _read(self, asked: RowsAsked, rows: Any) -> tuple[TokenArray, Ints]:
        tokens, accepted = super()._read(asked, replace(rows, draft_tokens=asked.arrays["draft_tokens"]))
        return tokens[:-1, ::3], accepted[::3]


def shape_that_failed(audited: Audited) -> tuple[int, int] | None:
    """(rows of a call, ids) where the tests are clearest, as many rows as fit; None without any."""
    failed = [one for one in audited.failed if one.kernel == CALLS]
    for axis in ("calls", "rows of a call"):
        found = [
            (table.log10_e, [int(number.replace(",", "")) for number in numbers], one.vocab_size)
            for one in failed
            for table in one.tables
            if table.where.startswith(f"{axis}: ")
            and (numbers := re.findall(r"\d[\d,]*", table.where.partition(";")[0]))
        ]
        if found:
            _, numbers, ids = max(found)
            rows, ids = (numbers[0], numbers[1]) if axis == "calls" else (numbers[-1], ids)
            return max(1, min(rows, NUMBERS // (OF_A_STEP * ids))), ids
    return None


def outcomes_of(
    audited: Audited, cases: Sequence[Case], source: Any = VerifierSource, steps: int = FURTHER_STEPS
) -> list[tuple[Case, Ints]]:
    """The cases with the counts of their outcomes; none if the verifier breaks the contract in one."""
    subject, seen = audited.subject, list[tuple[Case, Ints]]()
    for case in cases:
        audited.in_time()
        calls = source(subject.callee, case, subject.timeout)
        if (counts := count_steps(calls, OutcomeTally(case), KEY, steps)) is None:
            return []
        seen.append((case, flat(counts["outcomes"])))
    return seen
