"""The tokens of a case of changing shape under the known mistakes that show over many ids alone.

Given what came before it, each token has the law of a single row, of a bonus or not. Images of tokens lie in
the bins of the audit by the kind of their row, and an audit knows the rows that each step had."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from specsim.auditing._cases.battery import case_key
from specsim.auditing._cases.shapes import Bank, ShapedRows, ShapesCase
from specsim.auditing._checks.alternatives import Bins
from specsim.auditing._checks.counts import PIT_BINS
from specsim.auditing._checks.shapes import ShapesTally
from specsim.auditing._checks.subjects import Span, count_span
from specsim.auditing._diagnosis import posterior as odds
from specsim.auditing._diagnosis.likelihood import Prediction
from specsim.auditing._diagnosis.reproduction import Audited
from specsim.core._streams import Key
from specsim.core._types import Floats, Ints
from specsim.mistakes import Mistake
from specsim.mistakes._rows import PARTS, Pair

#: Points of a grid of parameters, and the total variations that some thousand tokens of each kind can tell.
POINTS, TOLD = 16, (0.03, 0.1, 0.3)


class Steps(NamedTuple):
    """The rows of steps over `ids` ids: places [B, γ+1] in the bank, and the number of drafted tokens [B]."""

    ids: int
    places: NDArray[np.int32]
    drafted: Ints


@dataclass(frozen=True)
class Seen:
    """Images of the tokens of each kind of row [K, bins], in one order, and the steps of the case."""

    name: str
    case: ShapesCase
    order: int
    counts: Ints
    steps: list[Steps]

    @cached_property
    def banks(self) -> dict[int, tuple[Bank, list[Bins]]]:
        found = {}
        for ids in {one.ids for one in self.steps}:
            bank = self.case.bank(ids)
            found[ids] = (
                bank,
                [Bins(*one, PIT_BINS) for one in zip(bank.p, bank.below[self.order], strict=True)],
            )
        return found

    @property
    def right(self) -> odds.Seen:
        return [(Prediction(np.full(self.counts.shape, 1.0 / PIT_BINS)), self.counts)]

    def under(self, mistake: Mistake) -> odds.Seen:
        """The images under the law of a mistake, of tokens that are reached as often as its chances say."""
        parts, found = PARTS[mistake.name], np.zeros(self.counts.shape)
        for ids, (bank, bins) in self.banks.items():
            first, chance = parts.of_first(Pair(bank.p, bank.q), **mistake.values)
            laws, accepted = (first, parts.of_bonus(bank.p, **mistake.values)), (bank.q * chance).sum(axis=1)
            shares = np.sum([_shares(one, accepted) for one in self.steps if one.ids == ids], axis=0)
            for of, law in zip(shares, laws, strict=True):
                found += of[:, None] * [one.of(row) for one, row in zip(bins, law, strict=True)]
        return [(Prediction(found / found.sum(axis=1, keepdims=True)), self.counts)]


def _shares(steps: Steps, accepted: Floats) -> Floats:
    """How many drafted places, and bonuses, [2, K], are reached of each kind of row."""
    at, reached = np.arange(steps.places.shape[1]), np.ones(steps.places.shape)
    reached[:, 1:] = accepted[steps.places[:, :-1]].cumprod(axis=1)
    masks = at < steps.drafted[:, None], at == steps.drafted[:, None]
    size = len(accepted)
    return np.array([np.bincount(steps.places[one], reached[one], minlength=size) for one in masks])


def seen_in(audited: Audited) -> Seen | None:
    """The tokens of the failed case of changing shape of fewest ids, its planned steps; None without one."""
    cases = [(one, audited.subject.case(one.case)) for one in audited.failed]
    among = [(one, case) for one, case in cases if isinstance(case, ShapesCase)]
    if not among:
        return None
    result, case = min(among, key=lambda one: sum(one[1].vocab_sizes))
    key, steps = case_key(audited.root, result.case), max(result.steps, result.planned)
    span = Span(result.case, key, result.steps, steps - result.steps)
    more = count_span(audited.subject, span, audited.in_time).counts
    begin = ShapesTally(case).axes.first("kind of row")
    images = (result.counts["images"] + more["images"])[begin : begin + len(case.kinds)]
    even = images.sum(axis=2, keepdims=True) / PIT_BINS
    order = int(((images - even) ** 2 / np.maximum(even, 1.0)).sum(axis=(0, 2)).argmax())
    return Seen(result.case, case, order, images[:, order], list(_steps(case, key, steps)))


def _steps(case: ShapesCase, key: Key, steps: int) -> Iterator[Steps]:
    found: dict[tuple[int, int], list[ShapedRows]] = defaultdict(list)
    for block, start, number in case.blocks(key, 0, steps):
        found[block.vocab_size, block.gamma].append(case.rows(key, block, start, number))
    for (ids, gamma), some in found.items():
        drafted = [np.full(len(one.places), gamma) if one.lengths is None else one.lengths for one in some]
        yield Steps(ids, np.concatenate([one.places for one in some]), np.concatenate(drafted))


def score(mistake: Mistake, seen: Seen) -> odds.Scored:
    """`mistake` with its likeliest parameters."""
    return odds.fitted(mistake, mistake.parameters, seen.under, POINTS, TOLD)
