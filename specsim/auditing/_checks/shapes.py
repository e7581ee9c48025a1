"""The counts and the tables of cases of changing shape.

Given what came before it, the image of a token in [0, 1), in whatever order of the tokens of its row, is
uniform if the verifier is exact: whatever the row, the shape of the call, and the place in it. So tokens of
all rows pool into tables, one for each value of each *axis* and each order; docs/statistics.md has these, and
what *pairs* and *halves* show."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from specsim.auditing._cases.shapes import ORDERS, Block, ShapedRows, ShapesCase
from specsim.auditing._checks.counts import PIT_BINS, QUARTERS, TAIL_EDGES, first_impossible, pit_bin
from specsim.auditing._checks.tables import Plan, Table, even_table
from specsim.auditing._results.audit import CALLS, ROWS_AND_GAMMA
from specsim.core._kernels import inner_kernel, kernel
from specsim.core._streams import Key, Purpose, uniforms
from specsim.core._types import Floats, Ints
from specsim.simulation._counting import Example, no_counts
from specsim.simulation._sources import Batch

#: Orders of the tokens whose images are paired: by p/q, and by id, as inverse CDFs draw.
PAIRED = (0, 2)
#: Pairs of first tokens of any two rows, and of two copies of one, nearly equal under equal random numbers.
ALIKE = (False, True)
#: Distances of two rows of a call; 0 is half of the call.
DISTANCES = (*range(1, 9), 16, 32, 64, 128, 256, 512, 1024, 2048, 0)
#: Distances in calls of two rows at the same place.
CALLS_APART = (1, 2, 3, 4, 8, 16)
#: What follows a row whose bonus is paired, and the order of the bonus: its token is drawn by inverse CDF.
NEXT, OF_BONUS = ("the next row of the call", "the first row of the next call"), 2
#: Places of a row whose tokens are paired with the first token of the next row: both have one random number
#: if those of the next row begin before these end.
PLACES = tuple(range(1, 17))
#: The upper end of the last class.
MOST = 2**30
#: Upper ends of the classes of rows in a call, of γ, and of the number of a row in its call.
ROWS = (1, 2, 4, 8, 64, 512, 2048, MOST)
GAMMAS = (1, 2, 3, 4, 7, 8, 15, MOST)
NUMBERS = (32, 128, 1024, 2048, 4096, MOST)
#: Upper ends of the classes of rows and of γ together.
ROWS_TOGETHER, GAMMAS_TOGETHER = (1, 8, 64, 512, MOST), (1, 4, 8, 16, MOST)
CONTESTED_APART = "distance of two contested places"
#: An axis of drafted tokens after the first 16.
LATE, LATE_FROM = "drafted after the first 16", 16
#: An axis of bonuses.
OF_BONUSES = "kind of row of a bonus"
#: Rows of a call from which on a power of two, and a number beside one, are values of an axis.
LEAST_POWER = 8


class Codes(NamedTuple):
    """The codes of a block's tokens: shared, of each step (-1: none), and where axes of tokens begin."""

    of_block: Ints
    of_rows: Ints
    place: int
    late: int
    last_drafted: int
    bonus: int
    kind: int
    kind_of_bonus: int
    before: int
    distance: int


@dataclass(frozen=True)
class Axes:
    """The axes of a case. A value of an axis has a *code*, its index in `values`."""

    case: ShapesCase

    @cached_property
    def values(self) -> list[tuple[str, str]]:
        """(axis, value) of each code."""
        case = self.case
        names = {
            "tokens": ["all"],
            "rows of a call": (*_classes(ROWS, self.most_rows), "a power of two", "one beside it", "odd"),
            "γ": _classes(GAMMAS, case.gamma),
            "vocabulary": [f"{size:,}" for size in case.vocab_sizes],
            "row of its call": ("first", "last", *_classes(NUMBERS, self.most_rows)),
            "call": ("first after a larger one", "first after a smaller one", "others"),
            "place in the step": ("last drafted", "bonus", *map(str, range(1, case.positions + 1))),
            LATE: ["all"] * (case.gamma > LATE_FROM),
            "last drafted of γ": _classes(GAMMAS, case.gamma),
            "bonus of γ": _classes(GAMMAS, case.gamma),
            "kind of row": case.kinds,
            OF_BONUSES: case.kinds,
            "p/q of the tokens before": ("below 1/2", "1/2 to 1", "1 to 2", "2 or more"),
            CONTESTED_APART: [str(k) for k in range(1, case.gamma) if case.contested],
            ROWS_AND_GAMMA: [
                f"{rows} rows, γ {gamma}"
                for rows in _classes(ROWS_TOGETHER, self.most_rows)
                for gamma in _classes(GAMMAS_TOGETHER, case.gamma)
            ],
            "calls": dict.fromkeys(
                f"{rows} rows, {ids:,} ids, γ {gamma}"
                for (rows, _), (ids, gamma) in zip(case.sizes, case.together, strict=bool(case.together))
            ),
        }
        return [(axis, value) for axis, of_axis in names.items() for value in of_axis]

    @cached_property
    def most_rows(self) -> int:
        return max(rows for rows, _ in self.case.sizes)

    @cached_property
    def code(self) -> dict[tuple[str, str], int]:
        return {value: code for code, value in enumerate(self.values)}

    def first(self, axis: str) -> int:
        return next(code for code, (name, _) in enumerate(self.values) if name == axis)

    def codes(self, block: Block, inside: Ints) -> Codes:
        """The codes of the steps `inside` a block."""
        gamma = _class(GAMMAS, block.gamma)
        return Codes(
            np.array(self._of_block(block)),
            self._of_rows(block, inside),
            self.first("place in the step"),
            self.first(LATE) if block.gamma > LATE_FROM else -1,
            self.first("last drafted of γ") + gamma,
            self.first("bonus of γ") + gamma,
            self.first("kind of row"),
            self.first(OF_BONUSES),
            self.first("p/q of the tokens before"),
            self.first(CONTESTED_APART) if self.case.contested else 0,
        )

    def _of_block(self, block: Block) -> list[int]:
        rows, axis = block.rows, "rows of a call"
        codes = [
            self.first(axis) + _class(ROWS, rows),
            self.first("γ") + _class(GAMMAS, block.gamma),
            self.code["vocabulary", f"{block.vocab_size:,}"],
            self.code["tokens", "all"],
            self.first(ROWS_AND_GAMMA)
            + _class(ROWS_TOGETHER, rows) * len(_classes(GAMMAS_TOGETHER, self.case.gamma))
            + _class(GAMMAS_TOGETHER, block.gamma),
        ]
        if self.case.together:
            codes.append(self.code["calls", f"{rows} rows, {block.vocab_size:,} ids, γ {block.gamma}"])
        power, *beside = (rows >= LEAST_POWER and (rows + i).bit_count() == 1 for i in (0, -1, 1))
        is_ = {"a power of two": power, "one beside it": any(beside), "odd": rows % 2 and rows > 1}
        return codes + [self.code[axis, value] for value, holds in is_.items() if holds]

    def _of_rows(self, block: Block, inside: Ints) -> NDArray[np.int64]:
        """The codes [B, 4] of the steps `inside` a block, -1 for none."""
        place, axis = inside % block.rows, "row of its call"
        codes = np.full((len(inside), 4), -1)
        codes[place == 0, 0] = self.code[axis, "first"]
        codes[place == block.rows - 1, 1] = self.code[axis, "last"]
        codes[:, 2] = self.code[axis, "last"] + 1 + np.searchsorted(NUMBERS, place + 1)
        codes[:, 3] = self.code["call", "others"]
        if block.larger is not None:
            after = "larger" if block.larger else "smaller"
            codes[inside < block.rows, 3] = self.code["call", f"first after a {after} one"]
        return codes


def _classes(ends: Sequence[int], most: int) -> list[str]:
    """The names of the classes with these upper ends that the numbers from 1 to `most` fall into."""
    names, low = [], 1
    for high in ends:
        if low <= most:
            more = f"{low:,} or more" if high == MOST else f"{low:,} to {high:,}"
            names.append(f"{low:,}" if low == high else more)
        low = high + 1
    return names


def _class(ends: Sequence[int], number: int) -> int:
    return int(np.searchsorted(ends, number))


@dataclass(frozen=True)
class ShapesTally:
    """Images by code and order, pairs of images, impossible tokens; arrays of `AuditTally` have its names."""

    case: ShapesCase

    @cached_property
    def axes(self) -> Axes:
        return Axes(self.case)

    def zeros(self) -> dict[str, NDArray[Any]]:
        positions, pairs = self.case.positions, len(list(_pair_names()))
        return {
            "lengths": np.zeros(positions, dtype=np.int64),
            "images": np.zeros((len(self.axes.values), len(self.case.orders), PIT_BINS), dtype=np.int64),
            "pairs": np.zeros((pairs, len(ALIKE), len(PAIRED), QUARTERS**2), dtype=np.int64),
            "halves": np.zeros((len(ROWS) - 1, len(PAIRED) + 1, PIT_BINS), dtype=np.int64),
            "tail": np.zeros((0, len(TAIL_EDGES)), dtype=np.int64),
            "impossible": np.zeros(positions, dtype=np.int64),
        }

    def count(self, counts: dict[str, NDArray[Any]], batch: Batch, key: Key) -> list[Example]:
        """Count the steps of a block; the first of their impossible tokens."""
        rows: Any = batch.rows
        steps, gamma = len(batch.accepted), rows.block.gamma
        counts["lengths"] += np.bincount(batch.accepted, minlength=self.case.positions)
        v = uniforms(key, int(Purpose.COUNT), batch.first, steps, gamma + 2)
        longest = np.full(steps, gamma) if rows.lengths is None else rows.lengths
        first, bonus = np.full((2, len(self.case.orders), steps), -1.0)
        later = np.full((len(PLACES), len(PAIRED), steps), -1.0)
        impossible = np.zeros(self.case.positions, dtype=np.int64)
        drafts = rows.places, rows.apart, longest, rows.bank.p, rows.bank.q, rows.bank.below
        codes = self.axes.codes(rows.block, rows.inside)
        count_images(batch.tokens, v, drafts, codes, (counts["images"], impossible, first, bonus, later))
        counts["impossible"] += impossible
        paired = _quarters(first[list(PAIRED)]), _quarters(bonus[list(PAIRED)])
        kinds = rows.places[:, 0].copy(), rows.places[np.arange(steps), longest]
        quarters = paired, _quarters(bonus[[OF_BONUS] * len(PAIRED)]), _quarters(later)
        count_pairs(*quarters, kinds, rows.places, rows.inside, rows.block.rows, counts["pairs"])
        halves = counts["halves"][_class(ROWS, rows.block.rows) - 1]
        _count_halves([*first[list(PAIRED)], bonus[OF_BONUS]], v[gamma + 1], rows, halves)
        if not impossible.any():
            return []
        return first_impossible(batch, lambda s, i, x: float(rows.bank.p[rows.places[s, i], x]))


@kernel
def count_images(tokens, v, drafts, codes, counts):  # type: ignore[no-untyped-def]
    """Count the images of tokens[γ+1, B], which the uniforms v[γ+1, B] spread over the mass of each token.

    `drafts` are places[B, γ+1], apart[2, B], longest[B], and p, q, below of the bank; `counts` images[code,
    order, bin], impossible[γ+1], and the images first, bonus[order, B] and those later[place, order, B] of
    `PLACES` in the orders `PAIRED`, -1 for no token or an impossible one."""
    places, apart, longest, p, q, below = drafts
    images, impossible, first, bonus, later = counts
    of_block, of_rows = codes.of_block, codes.of_rows
    found = np.empty(of_block.size + of_rows.shape[1] + 8, np.int64)
    for j in range(of_block.size):
        found[j] = of_block[j]
    for s in range(tokens.shape[1]):
        shared = of_block.size
        for j in range(of_rows.shape[1]):
            if of_rows[s, j] >= 0:
                found[shared] = of_rows[s, j]
                shared += 1
        before = 1.0
        for i in range(tokens.shape[0]):
            x = tokens[i, s]
            if x < 0:
                break
            k = places[s, i]
            mass = p[k, x]
            if mass == 0.0:
                impossible[i] += 1
                continue
            found[shared], found[shared + 1] = codes.place + 2 + i, codes.kind + k
            number = shared + 2
            if codes.late >= 0 and LATE_FROM <= i < longest[s]:
                found[number] = codes.late
                number += 1
            if i >= longest[s] - 1:
                is_bonus = i == longest[s]
                found[number] = codes.place + (1 if is_bonus else 0)
                found[number + 1] = codes.bonus if is_bonus else codes.last_drafted
                number += 2
                if is_bonus:
                    found[number] = codes.kind_of_bonus + k
                    number += 1
            if 0 < i < longest[s]:
                found[number] = codes.before + (before >= 0.5) + (before >= 1.0) + (before >= 2.0)
                number += 1
            if q[k, x] > 0.0:
                before *= mass / q[k, x]
            if i > 0 and i == apart[1, s]:
                found[number] = codes.distance + apart[0, s] - 1
                number += 1
            for o in range(images.shape[1]):
                image = below[o, k, x] + v[i, s] * mass
                b = pit_bin(image, images.shape[2])
                for j in range(number):
                    images[found[j], o, b] += 1
                if i == 0:
                    first[o, s] = image
                if i == longest[s]:
                    bonus[o, s] = image
                for n in range(len(PAIRED)):
                    if 0 < i <= later.shape[0] and PAIRED[n] == o:
                        later[i - 1, n, s] = image


def _quarters(images: Floats) -> Ints:
    """The quarters of images [order, B], or -1."""
    return np.where(images >= 0.0, np.minimum(images * QUARTERS, QUARTERS - 1), -1.0).astype(np.int64)


@kernel
def count_pairs(  # type: ignore[no-untyped-def]
    paired, bonus, later, kinds, places, inside, rows, pairs
):
    """Count the quarters of two tokens in pairs[distance, alike, order, cell]: paired[0][order, B] are those
    of the first tokens, whose rows are of kinds[0][B], paired[1] those of the bonuses, of kinds[1]; beside
    first tokens bonus[order, B] has the bonuses, and later[place, order, B] those of tokens at `PLACES`,
    whose rows are places[B, γ+1].

    No step is in two pairs of one distance, and a bonus and a first token are in one pair each."""
    steps, place, first = inside.size, inside % rows, paired[0]
    led = len(DISTANCES) + len(CALLS_APART)
    for both in range(2):
        tokens, of, begin = paired[both], kinds[both], both * (led + len(NEXT) + len(PLACES))
        for number, distance in enumerate(DISTANCES):
            apart = distance if distance > 0 else rows // 2
            if 0 < apart < rows:
                for s in range(steps - apart):
                    begins = place[s] < apart if distance == 0 else place[s] // apart % 2 == 0
                    if begins and place[s] + apart < rows:
                        alike = of[s] == of[s + apart]
                        _add_pair(tokens[:, s], tokens[:, s + apart], alike, pairs[begin + number])
        for number, distance in enumerate(CALLS_APART, begin + len(DISTANCES)):
            apart = distance * rows
            for s in range(steps - apart):
                if inside[s] // apart % 2 == 0:
                    alike = of[s] == of[s + apart]
                    _add_pair(tokens[:, s], tokens[:, s + apart], alike, pairs[number])
    # the first token leads: a table is about the other one given its half
    for s in range(steps - 1):
        next_call = 1 if place[s] + 1 == rows else 0
        alike = kinds[1][s] == kinds[0][s + 1]
        _add_pair(first[:, s + 1], bonus[:, s], alike, pairs[led + next_call])
        if next_call == 0:
            for i in range(1, min(places.shape[1], later.shape[0] + 1)):
                alike = places[s, i] == kinds[0][s + 1]
                _add_pair(first[:, s + 1], later[i - 1, :, s], alike, pairs[led + 1 + i])


@inner_kernel
def _add_pair(one, other, alike, table):  # type: ignore[no-untyped-def]
    """Add the pair of quarters one[order], other[order] to table[alike, order, cell], if there are both."""
    if one[0] >= 0 and other[0] >= 0:
        for o in range(one.size):
            cell = one[o] * QUARTERS + other[o]
            table[0, o, cell] += 1
            if alike:
                table[1, o, cell] += 1


def _count_halves(tokens: Sequence[Floats], v: Floats, rows: ShapedRows, halves: Ints) -> None:
    """Count, in each row of `halves`, the image of the number of a call's tokens below one half."""
    if rows.block.rows < 2:
        return
    starts = np.flatnonzero(np.diff(rows.inside // rows.block.rows, prepend=-1))
    for row, images in zip(halves, tokens, strict=True):
        number = np.add.reduceat(images >= 0.0, starts, dtype=np.int64)
        low = np.add.reduceat((images >= 0.0) & (images < 0.5), starts, dtype=np.int64)
        below = np.where(low > 0, scipy.special.bdtr(np.maximum(low - 1, 0), number, 0.5), 0.0)
        image = below + v[starts] * (scipy.special.bdtr(low, number, 0.5) - below)
        bins = np.minimum((image[number > 0] * PIT_BINS).astype(np.int64), PIT_BINS - 1)
        row += np.bincount(bins, minlength=PIT_BINS)


def plan_shapes(tally: ShapesTally, steps: int) -> Plan:
    return Plan(tally.case, CALLS, steps, list(_tables(tally, steps)), no_counts(tally))


def _tables(tally: ShapesTally, steps: int) -> Iterator[Table]:
    """A table for each code and order, and for each distance of pairs and order."""
    of_position = tally.axes.code["place in the step", "1"]
    for code, (axis, value) in enumerate(tally.axes.values):
        for o, ordered_by in enumerate(tally.case.orders):
            number = code * len(tally.case.orders) + o
            position = max(0, code - of_position) if axis == "place in the step" else 0
            kind = "PIT" if position == code - of_position and o == 0 else "shape"
            if axis == "tokens" and o == 0:
                kind = "all"
            where = f"{axis}: {value}; tokens ordered by {ordered_by}"
            yield even_table(kind, (code, o), "images", number, PIT_BINS, where, position)
    cells, law = np.tile(np.arange(QUARTERS), QUARTERS // 2), np.full(QUARTERS, 1.0 / QUARTERS)
    for number, (where, alike, order) in enumerate(product(_pair_names(), ALIKE, PAIRED)):
        of_bonus = f"{ORDERS[OF_BONUS]} and " if where.startswith("the bonus ") and order != OF_BONUS else ""
        name = f"{where}{' with the same p and q' * alike}, ordered by {of_bonus}{ORDERS[order]}"
        if not where.endswith(NEXT[0]):
            yield even_table("pairs", (number,), "pairs", number, QUARTERS**2, name)
            continue
        # whether a row goes on may depend on the next row's first token, but not how it goes on
        for half, which in enumerate(("lower", "upper") if not alike else ()):
            start, given = number * QUARTERS**2 + half * len(cells), f"{name}, the latter in the {which} half"
            yield Table("given", 0, (number, half), "pairs", start, cells, law, given)
    tokens = [*(f"first tokens {{}}, ordered by {ORDERS[order]}" for order in PAIRED), "bonuses {}"]
    for number, (rows, which) in enumerate(product(_classes(ROWS, tally.axes.most_rows)[1:], tokens)):
        name = "the " + which.format(f"of calls of {rows} rows")
        yield even_table("halves", (number,), "halves", number, PIT_BINS, name)


def _pair_names() -> Iterator[str]:
    calls = "successive calls", *(f"calls {distance} apart" for distance in CALLS_APART[1:])
    of = [f"rows {distance:,} apart in a call" for distance in DISTANCES[:-1]]
    of += ["rows half a call apart", *(f"rows at the same place of {one}" for one in calls)]
    yield from (f"the first tokens of {one}" for one in of)
    yield from (f"the bonus of a row and the first token of {following}" for following in NEXT)
    yield from (f"token {place + 1} of a row and the first token of {NEXT[0]}" for place in PLACES)
    yield from (f"the bonuses of {one}" for one in of)
