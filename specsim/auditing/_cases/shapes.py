"""Cases whose calls change their shape: rows of a call, drafted tokens, and vocabulary as servers have them.

A *block* is a few calls of one shape. The blocks of a case form a round; rounds repeat with the blocks in
another order and with other vocabularies and numbers of drafted tokens, so that every shape follows every
other. The rows of a call differ: each place takes a pair of rows from a *bank*, one for each vocabulary, with
rows of the kinds that verifiers go wrong at."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from specsim.adapters._contract import Declared
from specsim.auditing._cases.battery import BITS
from specsim.core._files import read_table
from specsim.core._streams import Key, Purpose, uniforms
from specsim.core._types import Floats, Ints, dtype_of
from specsim.core.distributions import dyadic, normalise

#: Most bytes of p and q in one call, as float64, where rows, γ and ids are drawn apart from each other.
CALL_BYTES = 2**25
#: How many times as many bytes the calls of a server have in a dtype that is not the verifier's first.
WEIGHT_OF_OTHERS = 3
#: Steps of a block whose calls would have more rows than a verifier takes.
STEPS_INSTEAD = 512
#: More than any verifier declares.
UNLIMITED = 2**30
#: The orders in which the tokens of a row are mapped to [0, 1): errors of verification move mass along p/q,
#: errors of processing along p, errors of ids among neighbours or along single bits. Calls of a server have
#: two orders more: what a uniform of 16 bits draws too often, a multiple of 2^-16 or the middle of two, and
#: what is drawn too often where sums over tiles of ids are held in float16.
ORDERS = ("p/q", "p", "id", "reversed bits of the id", "draws of 16 bits", "sums of 16 bits")
COARSE, TILE = 2**16, 32
#: The kinds of rows in a bank, and in that of a server's shapes. Large vocabularies have only the first ones.
#: Rows of a softmax sum to 1 only to rounding.
KINDS, SERVER_KINDS = (tuple(read_table("shapes")[name]) for name in ("kinds", "server_kinds"))
#: The last kinds are accepted often: a quarter of the longer drafts have only these, so that late places are
#: reached (three quarters of a server's, but for one place); and the length of such a draft. Half have the
#: last kind but at two *contested* places, where the uniform alone decides: what two tests share is seen.
OFTEN_ACCEPTED, CONTESTED, LONG = 2, KINDS.index("even odds"), 5
#: γ from which on only the last kind is accepted often enough to reach the last places.
LONGEST = 17
#: Most rows of a call in which the rows are alike, as those of several samples of one text; half of them.
MOST_ALIKE = 8
#: Rows so far apart have the same p and q in this share of a server's blocks, so that what they share shows.
PERIOD, REPEATED = 16, 1 / 3
#: The first row of a call begins greedy in this share of a server's blocks, others: no other row may heed it.
GREEDY = 1 / 4
#: Vocabulary from which on a bank has fewer kinds, and how many.
LARGE, KINDS_IF_LARGE = 5000, 5


class Block(NamedTuple):
    """`calls` calls of `rows` rows with `gamma` drafted tokens over `vocab_size` ids, from step `first` on;
    `larger`: the calls before it had more rows (None for the first of a round)."""

    rows: int
    calls: int
    gamma: int
    vocab_size: int
    first: int
    larger: bool | None

    @property
    def steps(self) -> int:
        return self.rows * self.calls


@dataclass(frozen=True)
class Bank:
    """Pairs of dyadic rows p, q [K, V]; `below` [O, K, V] is the mass before each token by `ORDERS`."""

    p: Floats
    q: Floats
    below: Floats
    draft_cdf: Floats


@dataclass(frozen=True)
class ShapesCase:
    """Calls of changing shape; `sizes` are (rows of a call, calls) of the blocks of a round, `together` the
    (ids, γ) of each, else drawn from `vocab_sizes` and `gammas`. `same_rows`: the calls of a block have the
    same p and q. `uneven`: steps have 0 to γ drafted tokens."""

    name: str
    purpose: str
    vocab_sizes: tuple[int, ...]
    gammas: tuple[int, ...]
    sizes: tuple[tuple[int, int], ...]
    together: tuple[tuple[int, int], ...] = ()
    bits: int = 24
    dtype: str = "float64"
    same_rows: bool = False
    uneven: bool = False
    weight: int = 1
    call_bytes: int = CALL_BYTES
    tree = None
    is_pair = False
    certain = False

    @property
    def vocab_size(self) -> int:
        """The largest vocabulary."""
        return max(self.vocab_sizes)

    @property
    def gamma(self) -> int:
        return max(self.gammas)

    @property
    def positions(self) -> int:
        return self.gamma + 1

    @cached_property
    def round_steps(self) -> int:
        return sum(rows * calls for rows, calls in self.sizes)

    @cached_property
    def step_bytes(self) -> int:
        """Bytes of p and q rows in a step, as float64: the mean over a round."""
        blocks = [block for number in range(4) for block in self.round((0, 0), number)]
        total = sum(8 * block.steps * block.vocab_size * (2 * block.gamma + 1) for block in blocks)
        return total // sum(block.steps for block in blocks)

    @cached_property
    def largest_call(self) -> int:
        """Bytes of p and q in the largest call, in the dtype of the case."""
        blocks = [block for number in range(4) for block in self.round((0, 0), number)]
        most = max(block.rows * block.vocab_size * (2 * block.gamma + 1) for block in blocks)
        return most * dtype_of(self.dtype).itemsize

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        if self.together:
            return SERVER_KINDS
        return KINDS if min(self.vocab_sizes) < LARGE else KINDS[:KINDS_IF_LARGE]

    @property
    def orders(self) -> tuple[str, ...]:
        return ORDERS if self.together else ORDERS[:4]

    @property
    def contested(self) -> bool:
        """Whether drafts have two contested places."""
        return self.kinds == KINDS and self.gamma > 1

    def bank(self, vocab_size: int) -> Bank:
        return bank(vocab_size, self.bits, self.kinds, self.dtype, len(self.orders))

    def round(self, key: Key, number: int) -> list[Block]:
        """The blocks of one round, in their order."""
        rng = np.random.default_rng([*map(int, key), number, crc32(self.name.encode())])
        found, first, before = [], number * self.round_steps, None
        vocab_sizes, gammas = (rng.permutation(some) for some in (self.vocab_sizes, self.gammas))
        for i in rng.permutation(len(self.sizes)).tolist():
            rows, calls = self.sizes[i]
            if self.together:
                vocab_size, gamma = self.together[i]
            else:
                wanted = int(vocab_sizes[i % len(vocab_sizes)]), int(gammas[i % len(gammas)])
                vocab_size, gamma = self._fitting(rows, *wanted)
            larger: bool | None = None if before is None else before > rows
            found.append(Block(rows, calls, gamma, vocab_size, first, larger))
            first, before = first + rows * calls, rows
        return found

    def _fitting(self, rows: int, vocab_size: int, gamma: int) -> tuple[int, int]:
        """The vocabulary and γ, or smaller ones so that a call is no larger than `call_bytes`."""
        most = self.call_bytes // (8 * rows)
        sizes = [size for size in self.vocab_sizes if size <= vocab_size and size * 3 <= most]
        vocab_size = max(sizes, default=min(self.vocab_sizes))
        gammas = [one for one in self.gammas if one <= gamma and vocab_size * (2 * one + 1) <= most]
        return vocab_size, max(gammas, default=min(self.gammas))

    def blocks(self, key: Key, first: int, steps: int) -> Iterator[tuple[Block, int, int]]:
        """(block, start, steps) of the parts of blocks in [first, first + steps)."""
        end = first + steps
        for number in range(first // self.round_steps, -(-end // self.round_steps)):
            for block in self.round(key, number):
                start, stop = max(first, block.first), min(end, block.first + block.steps)
                if start < stop:
                    yield block, start, stop - start

    def rows(self, key: Key, block: Block, start: int, steps: int) -> "ShapedRows":
        """Steps [start, start + steps) of `block`, with their drafts."""
        bank, gamma = self.bank(block.vocab_size), block.gamma
        inside = start - block.first + np.arange(steps)
        if self.same_rows:
            of_a_call = uniforms(key, int(Purpose.CONTEXT), block.first, block.rows, gamma + 6)
            period = PERIOD if self.together and of_a_call[gamma + 5, 0] < REPEATED else block.rows
            choices = of_a_call.T[inside % block.rows % period]
        else:
            before = inside[0] % block.rows  # steps of the first call that are not asked for
            choices = uniforms(key, int(Purpose.CONTEXT), start - before, before + steps, gamma + 6).T
            if 1 < block.rows <= MOST_ALIKE:
                firsts = np.arange(len(choices)) // block.rows * block.rows
                alike = choices[firsts, gamma + 5] < 0.5
                choices = np.where(alike[:, None], choices[firsts], choices)
            choices = choices[before:]
        kinds, apart = len(bank.p) - bool(self.together), np.zeros((2, steps), dtype=np.int64)
        scores = choices[:, : gamma + 1] * kinds
        if gamma >= LONG and (self.together or self.contested):
            sort = choices[:, gamma + 1]
            easy = sort < (0.75 if self.together else 0.25)
            often = OFTEN_ACCEPTED if gamma < LONGEST else 1
            scores[easy] = kinds - often + scores[easy] * (often / kinds)
            if self.together:
                one = (choices[easy, gamma + 3] * (gamma + 1)).astype(int)
                scores[easy, one] = choices[easy, one] * kinds
        if gamma >= LONG and self.contested:
            two = np.flatnonzero((sort >= 0.25) & (sort < 0.75))
            apart[0, two] = 1 + choices[two, gamma + 3] * (gamma - 1)
            apart[1, two] = apart[0, two] + (choices[two, gamma + 4] * (gamma - apart[0, two])).astype(int)
            scores[two] = kinds - 1
            scores[two, apart[1, two] - apart[0, two]] = scores[two, apart[1, two]] = CONTESTED
        places = scores.astype(np.int32)
        if self.together and block.rows > MOST_ALIKE and of_a_call[gamma + 5, 0] > 1.0 - GREEDY:
            places[inside % block.rows == 0, 0] = kinds
        u = uniforms(key, int(Purpose.DRAFT), start, steps, gamma).T
        tokens = np.empty((steps, gamma), dtype=np.int64)
        for k, cdf in enumerate(bank.draft_cdf):
            here = places[:, :gamma] == k
            tokens[here] = cdf.searchsorted(u[here] * cdf[-1], side="right")
        lengths = (choices[:, gamma + 2] * (gamma + 1)).astype(np.int64) if self.uneven else None
        return ShapedRows(tokens, places, bank, block, inside, apart, lengths)


def _design(entry: dict[str, Any]) -> ShapesCase:
    """An entry of data/shapes.toml of the package."""
    made = {name: _tuples(value) for name, value in entry.items()}
    if blocks := made.pop("blocks", ()):
        rows, calls, ids, gammas = zip(*blocks, strict=True)
        made |= {"vocab_sizes": tuple(dict.fromkeys(ids)), "gammas": tuple(dict.fromkeys(gammas))}
        made["sizes"] = tuple(zip(rows, calls, strict=True))
        made["together"] = tuple(zip(ids, gammas, strict=True))
    return ShapesCase(**made)


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


@dataclass(frozen=True)
class ShapedRows:
    """Steps of one block: draft_tokens int64 [B, γ], and the pair of the bank at each place, int32 [B, γ+1].
    `inside` int64 [B] counts the steps from the block's first; `apart` int64 [2, B] are the distance of the
    contested places and the second of them, 0 and 0 without."""

    draft_tokens: Ints
    places: NDArray[np.int32]
    bank: Bank
    block: Block
    inside: Ints
    apart: Ints
    lengths: Ints | None = None

    @property
    def vocab_size(self) -> int:
        return self.block.vocab_size


def shape_cases(declared: Declared) -> list[ShapesCase]:
    if declared.tree or declared.decoder:
        return []
    designs = _DESIGNS if declared.device == "cpu" else (*_DESIGNS, _ON_DEVICE)
    most_ids = declared.vocab_size or UNLIMITED
    first, *others = declared.dtypes
    cases = [_for_verifier(one, declared, first) for one in designs if min(one.vocab_sizes) <= most_ids]
    server = [case for case in cases if case.together][:1]
    return cases + [
        replace(_for_verifier(case, declared, dtype), name=f"{case.name}, {dtype}", weight=WEIGHT_OF_OTHERS)
        for case in server
        for dtype in others
    ]


def _for_verifier(design: ShapesCase, declared: Declared, dtype: str) -> ShapesCase:
    """`design` in a dtype of the verifier, with no more ids, rows and drafted tokens than it takes."""
    ids, gamma, rows = (most or UNLIMITED for most in (declared.vocab_size, declared.gamma, declared.batch))
    sizes, together = design.sizes, design.together
    if together:
        kept = [i for i, (of_block, _) in enumerate(together) if of_block <= ids]
        sizes, together = (tuple(some[i] for i in kept) for some in (sizes, together))
    return replace(
        design,
        vocab_sizes=tuple(size for size in design.vocab_sizes if size <= ids),
        gammas=tuple(dict.fromkeys(min(one, gamma) for one in design.gammas)),
        sizes=tuple(_at_most(*size, rows) for size in sizes),
        together=tuple((of_block, min(one, gamma)) for of_block, one in together),
        bits=BITS[dtype],
        dtype=dtype,
        uneven=declared.lengths,
    )


def _at_most(rows: int, calls: int, most: int) -> tuple[int, int]:
    """A block with calls of at most `most` rows; a larger one becomes more calls."""
    if rows <= most:
        return rows, calls
    return most, min(-(-rows * calls // most), max(calls, STEPS_INSTEAD // most))


@cache
def bank(vocab_size: int, bits: int, kinds: tuple[str, ...], dtype: str = "float64", orders: int = 4) -> Bank:
    """The bank of a vocabulary; its rows are multiples of 2^-bits, but those of a softmax in `dtype`, and
    those of a server in half precision, whose small entries are finer."""
    rng = np.random.default_rng([vocab_size, bits])
    pairs = [_rounded(kind, _pair(kind, rng, vocab_size), bits, dtype) for kind in kinds]
    p, q = (np.ascontiguousarray([pair[side] for pair in pairs]) for side in (0, 1))
    by_bits, by_id = np.zeros(1, dtype=np.int64), np.arange(vocab_size)
    while len(by_bits) < vocab_size:
        by_bits = np.concatenate([2 * by_bits, 2 * by_bits + 1])
    by_bits = by_bits[by_bits < vocab_size]
    below = np.empty((orders, *p.shape))
    for k, (row, other) in enumerate(zip(p, q, strict=True)):
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(row > 0, row / other, 0.0)
        by_ratio, by_mass = (np.argsort(score, kind="stable") for score in (ratio, row))
        found = [by_ratio, by_mass, by_id, by_bits]
        if orders > len(found):
            drawn = row if kinds[k] != "spread" else normalise(np.maximum(row - other, 0.0))
            found += [np.argsort(of(drawn), kind="stable") for of in (_of_coarse_draws, _of_half_sums)]
        for o, order in enumerate(found):
            ranked = row[order]
            below[o, k, order] = ranked.cumsum() - ranked
    return Bank(p, q, below, q.cumsum(axis=1))


def _of_half_sums(row: Floats) -> Floats:
    """How much too often a token is drawn where the sums before each tile of ids are held in float16."""
    sums = np.append(row.cumsum()[TILE - 1 : -1 : TILE], row.sum())
    found = np.diff(sums.astype(np.float16).astype(np.float64), prepend=0.0)
    tiles = np.diff(sums, prepend=0.0)
    ratio = np.divide(found, tiles, out=np.zeros_like(tiles), where=tiles > 0.0)
    return np.repeat(ratio, TILE)[: len(row)]


def _of_coarse_draws(row: Floats) -> Floats:
    """How much too rarely a token is drawn at multiples of 2^-16, less the same at the middles of these."""
    after = row.cumsum() * COARSE
    numbers = np.ceil([after, after - row * COARSE])
    middles = np.ceil([after - 0.5, after - row * COARSE - 0.5])
    with np.errstate(divide="ignore", invalid="ignore"):
        less = (middles[0] - middles[1] - numbers[0] + numbers[1]) / row
    return np.where(row > 0, less, 0.0)


def _rounded(kind: str, pair: tuple[Floats, Floats], bits: int, dtype: str) -> tuple[Floats, Floats]:
    """The rows p, q of a kind as a verifier gets them."""
    if kind != "softmax":
        p, q = (_of_bits(row, bits) for row in pair)
    elif bits < BITS["float32"]:  # rounding to such a dtype is a deviation that can be seen
        p, q = (_of_bits(normalise(np.exp(logits)), bits) for logits in pair)
    else:
        weights = [np.exp(logits.astype(dtype)) for logits in pair]
        p, q = ((weight / weight.sum()).astype(np.float64) for weight in weights)
    return p, q


def _of_bits(row: Floats, bits: int) -> Floats:
    """The row in entries of at most `bits` significant bits that sum to exactly 1. Entries of large rows are
    multiples of 2^-24, where enough of them are small; else all are multiples of 2^-bits."""
    if len(row) >= LARGE and bits < BITS["float32"]:
        units = dyadic(row) * 2.0 ** BITS["float32"]
        step = 2.0 ** np.maximum(np.frexp(units)[1] - bits, 0)
        units = np.rint(units / step) * step
        small = np.flatnonzero((units > 0) & (units < 2 ** (bits - 1)))
        if len(small):
            each, rest = divmod(int(2 ** BITS["float32"] - units.sum()), len(small))
            units[small] += each
            units[small[:rest]] += 1
            if units[small].min() > 0 and units[small].max() <= 2**bits:
                return units / 2.0 ** BITS["float32"]
    return dyadic(row, bits)


def _pair(kind: str, rng: np.random.Generator, size: int) -> tuple[Floats, Floats]:
    """p and q [V] of a kind of rows; of "softmax" their logits."""
    ids = np.arange(size)
    match kind:
        case "Zipf":
            weights, order = 1.0 / (ids + 1), rng.permutation(size)
            p, q = weights[order], weights[order] * rng.gamma(1.0, size=size) + 1e-9
        case "peaked":  # p has .93 at one token, where q has .6
            rest, peak = normalise(rng.gamma(0.5, size=(2, size)) + 1e-12), int(rng.integers(size))
            p, q = 0.07 * rest[0], 0.4 * rest[1]
            p[peak], q[peak] = p[peak] + 0.93, q[peak] + 0.6
            return p, q
        case "mostly zeros":  # most ids are impossible under p, under q, or both; two are possible under both
            some = max(2, min(64, size // 8))
            order = rng.permutation(size)
            p, q = np.zeros((2, size))
            p[order[:some]] = rng.gamma(1.0, size=some) + 0.05
            shift = 0 if size < 4 else some // 2
            q[order[shift : shift + some]] = rng.gamma(1.0, size=some) + 0.05
        case "heavy last ids":  # half of p: the last one, and the last two hundred
            p, q = normalise(rng.gamma(0.5, size=(2, size)) + 1e-9)
            last = min(max(1, size // 4), 200)
            p[-last:] += normalise(rng.gamma(1.0, size=last) + 0.01) * 0.6
            p[-1] += 0.4
            q = q + (ids >= size - last) * 0.3 / last
        case "disjoint":  # p and q share almost no token
            p, q = rng.gamma(0.5, size=(2, size)) + 1e-9
            one = ids % 2 == int(rng.integers(2))
            p, q = np.where(one, p, 0.0) + 1e-3 * p, np.where(one, 0.0, q) + 1e-3 * q
        case "one-hot draft" | "greedy":  # one row is certain of a token that has .91 of the other
            p, peak = 0.09 * normalise(rng.gamma(0.5, size=size) + 1e-12), int(rng.integers(size))
            p[peak] += 0.91
            certain = (ids == peak).astype(np.float64)
            return (p, certain) if kind == "one-hot draft" else (certain, p)
        case "even odds":  # the draft is certain of a token that has half of p: the uniform decides
            rest, peak = rng.gamma(0.5, size=size) + 1e-9, int(rng.integers(size))
            rest[peak] = 0.0
            certain = (ids == peak).astype(np.float64)
            return 0.5 * normalise(rest) + 0.5 * certain, certain
        case "softmax":  # p and q have most of their tokens in common
            logits = 2.5 * rng.standard_normal(size)
            return logits - logits.max(), logits + 0.7 * rng.standard_normal(size) - logits.max()
        case "head and tail":  # as of a language model: 64 ids have .96 of p, all others the rest
            rest, head = normalise(rng.gamma(1.0, size=(2, size)) + 1e-9), rng.permutation(size)[:64]
            p, q = 0.04 * rest
            p[head] += 0.96 * normalise(rng.gamma(0.5, size=64) + 1e-3)
            q[head] += p[head] * rng.gamma(4.0, size=64)
        case "40 ids" | "40 others":  # of 50 ids p has the first 40 and q the last
            ids = rng.permutation(size)[:50]
            p, q = np.zeros((2, size))
            p[ids[:40]] = rng.gamma(0.7, size=40) + 0.02
            q[ids[-40:]] = p[ids[-40:]] + 0.3 * rng.gamma(0.7, size=40) + 0.02
        case "close":
            p, q = normalise(rng.gamma(0.5, size=(2, size)) + 1e-9)
            return p, 0.85 * p + 0.15 * q
        case "near-equal":
            p = normalise(rng.gamma(0.7, size=size) + 1e-9)
            return p, normalise(p * rng.uniform(0.9, 1.1, size=size))
        case _:  # spread
            p, q = rng.gamma(1.0, size=(2, size)) + 1e-9
    return normalise(p), normalise(q)


*_DESIGNS, _ON_DEVICE = map(_design, read_table("shapes")["case"])

#: The purposes of the cases in the shapes of a server, by name.
SERVER_CASES = {case.name: case.purpose for case in _DESIGNS if case.together}
