"""Steps in integers, for rules that test each drafted token against a probability of its own: of a fixed
pair, or of two models that read few contexts.

**The law.** Probabilities are integers, in units of 2^-62, and so are the random numbers of a step: number 0
draws the last token, and number i + 1 the token at position i, which it also tests. The numbers that draw a
token are a few intervals, and those that accept it are the first part of each. So rules that share p and q
draft the same tokens with the same numbers, as do drafts of any length.

**The table.** To draw, the last bits of a number's word choose one of 2^k columns of an alias table, and all
of its other bits are the coin: below a threshold it draws the column's own token, else its alias. The coins
that accept either token end at its *cut*. A column has its bits in the same order as a number: threshold,
alias in the last k bits of the word, rest of the threshold. An *entry* has the word of a column alone, and
that of a draft the first 16 bits of both cuts. So one load decides a draft and its test. Each context has
tables of its own, and then cuts do not depend on the position; `follow` has the context after a context and a
token.

**The kernel.** It goes position by position over many steps, in short loops without a branch: look-ups that
miss the cache overlap, and the arithmetic is vectorised. It draws every token and every test of a step, also
behind a rejection. Where the bits that it compares are equal, which is rare, it takes the step again with all
bits of its numbers."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from specsim.core._kernels import inner_kernel
from specsim.core._streams import Key, Purpose, fill_words
from specsim.core._types import Floats, Ints, TokenArray
from specsim.core.distributions import alias_columns, check_probabilities

#: The bits of a number: 32 of its word, and 30 that follow it.
BITS = 62
#: The streams of both.
STEP, REST = int(Purpose.STEP), int(Purpose.REST)
Words = NDArray[np.uint32]
#: Steps that are taken together: a constant, so loops need neither checks nor rests. They stay in the cache.
BATCH = 160
#: Counts of what a rejected position emits, in any order: few additions wait for the one before.
PADDING = 16
#: How far a word is from the nearest of what it was compared with: before the first comparison.
NOT_NEAR = np.uint32(0xFFFFFFFF)
NO_TOKENS, NO_WORDS = np.empty((0, 0), np.int32), np.empty((0, 0), np.uint32)


def as_integers(weights: Floats) -> Ints:
    """Weights ≥ 0 [V] as shares of 2^62, the sum, each within two units; 0 remains 0. Shares of sums are
    found by a long division in digits of 31 bits, with remainders modulo 2^64."""
    parts = np.rint(np.ldexp(weights, BITS - np.frexp(weights.sum())[1])).astype(np.int64)
    quotient, remainder = np.zeros_like(parts), parts.cumsum()
    total = remainder[-1]
    for _ in range(2):
        digits = np.floor(remainder / total * 2.0**31).astype(np.int64)
        quotient, remainder = (quotient << 31) + digits, (remainder << 31) - digits * total
    return np.diff(quotient, prepend=0)


def product(one: Ints, other: Ints) -> Ints:
    """Products of numbers in [0, 1], in units of 2^-62, rounded down, from digits of 31 bits."""
    (a, b), (c, d) = ((number >> 31, number & 0x7FFFFFFF) for number in (one, other))
    return a * c + (a * d + b * c + (b * d >> 31) >> 31)


def columns_of(weights: Floats) -> Ints:
    """The alias table of weights ≥ 0 [V], of 2^k ≥ V columns."""
    weights = check_probabilities(weights, "weights")
    k = int(weights.size - 1).bit_length()
    shares = np.zeros(1 << k, dtype=np.int64)
    shares[: weights.size] = as_integers(weights)
    full = 1 << BITS - k
    thresholds, aliases = alias_columns(shares, full)
    thresholds[thresholds == full] = 0  # a full column is its own alias
    return spread(thresholds, k) | aliases << 30


def spread(coins: Ints, k: int) -> Ints:
    """Coins of 62 - k bits with room for a column, as numbers have them."""
    return coins >> 30 << 30 + k | coins & 0x3FFFFFFF


def coins_of(numbers: Any, k: int) -> Any:
    """The coins of numbers, or the thresholds of columns: their bits without the column, or the alias."""
    return numbers >> 30 + k << 30 | numbers & 0x3FFFFFFF


def tables(draft: Floats, accept: Floats, recovered: Floats, bonus: Floats) -> tuple[np.ndarray, ...]:
    """Entries of drafts uint64 [r, 2^k] and of last tokens uint32 [2, 2^k]; columns and cuts [r, 2, 2^k] in
    full; the only context.

    accept [r, V] has the chance of each token by position; the last row is for all positions that follow."""
    columns = np.stack([columns_of(weights) for weights in (draft, recovered, bonus)])
    size, k = columns.shape[1], int(columns.shape[1] - 1).bit_length()
    chances = np.zeros((len(accept), size), dtype=np.int64)
    chances[:, : draft.size] = np.rint(np.ldexp(np.fmin(np.fmax(accept, 0.0), 1.0), BITS))
    words = (columns >> 30).astype(np.uint64)
    aliases, thresholds, end = columns[0] >> 30 & size - 1, coins_of(columns[0], k), 1 << BITS - k
    own, other = product(chances, thresholds), product(chances[:, aliases], end - thresholds) + thresholds
    cuts = spread(np.stack([own, other], axis=1), k)
    first = np.minimum(cuts >> BITS - 16, 0xFFFF).astype(np.uint64)
    entries = words[0] | first[:, 1] << np.uint64(32) | first[:, 0] << np.uint64(48)
    return entries, words[1:].astype(np.uint32), columns, cuts, np.zeros((1, 1), np.int32)


@inner_kernel
def number(words, rests, index):
    """A random number of a step, from its word and what follows it."""
    return np.int64(words[index]) << 30 | np.int64(rests[index]) >> 2


@inner_kernel
def drawn(columns, number):
    """The token that a number draws, whether it is its column's own, its coin, and the column."""
    mask = columns.size - 1
    column, coin = (number >> 30) & mask, number & ~(mask << 30)
    bits = columns[column]
    own = coin < (bits & ~(mask << 30))
    return column if own else (bits >> 30) & mask, own, coin, column


@inner_kernel
def take_step(columns, cuts, follow, context, words, rests, tokens):
    """Fill `tokens` with what the step of these numbers emits; return how many of them are accepted."""
    gamma, n, mask = tokens.size - 1, 0, follow.shape[1] - 1
    while n < gamma:
        x, own, coin, column = drawn(columns[3 * context], number(words, rests, n + 1))
        if not coin < cuts[context + min(n, len(cuts) - len(follow)), 0 if own else 1, column]:
            break
        tokens[n] = x
        context = follow[context, x & mask]
        n += 1
    tokens[n] = drawn(columns[3 * context + (2 if n == gamma else 1)], number(words, rests, 0))[0]
    return n


def word_count(gamma: int) -> int:
    """The words of a step, in whole slots."""
    return 4 * (gamma // 4 + 1)


class Scratch(NamedTuple):
    """Arrays that `run_steps` fills, [BATCH] or of one step: kernels that allocate none compile sooner."""

    words: Words  #: [4k, BATCH]
    found: NDArray[np.uint64]
    halves: Words  #: the same memory, [2 BATCH]
    alive: Words
    near: Words
    context: TokenArray
    emits: Words  #: [γ+1, BATCH]
    rests: Words
    tokens: TokenArray

    @classmethod
    def of(cls, gamma: int) -> "Scratch":
        words, rests = (np.empty((word_count(gamma), size), np.uint32) for size in (BATCH, 1))
        found, (alive, near, *emits) = np.empty(BATCH, np.uint64), np.empty((gamma + 3, BATCH), np.uint32)
        context, tokens = np.empty(BATCH, np.int32), np.empty(gamma + 1, np.int32)
        return cls(words, found, found.view(np.uint32), alive, near, context, np.array(emits), rests, tokens)


def draw_steps(tables: Any, key: Key, first: int, out: TokenArray, words: Words = NO_WORDS) -> None:
    """Fill out[:γ] with the accepted tokens of the steps from `first` on, -1 behind them; out[γ] with their
    last tokens. They are drawn with their words, or with `words` [4k, S] if given; with several contexts, the
    last of `tables` has those [S] that they begin at."""
    run_steps(tables, key, first, out.shape[1], out, words, NO_TOKENS, Scratch.of(len(out) - 1))


def count_steps(tables: Any, key: Key, first: int, steps: int, gamma: int, emitted: TokenArray) -> None:
    """Add what these steps emit to emitted[r, 2^k+16γ], r being 1 or 8: tokens, then padding, 16 columns for
    each position."""
    run_steps(tables, key, first, steps, NO_TOKENS, NO_WORDS, emitted, Scratch.of(gamma))


@inner_kernel
def run_steps(tables, key, first, steps, out, given, emitted, scratch):
    """Take steps, in the last batch also some behind the last one, and draw them, see `draw_steps`, if `out`
    has columns; count them, see `count_steps`, if `emitted` has."""
    (entries, last, columns, cuts, follow), gamma = tables[:5], len(scratch.emits) - 1
    words, found, halves, alive, near, context, emits, rests, tokens = scratch
    mask, last_bits = np.uint32(last.shape[1] - 1), np.uint32(0xFFFF)
    flat_entries, flat, width = entries.reshape(-1), last.reshape(-1), np.uint32(last.shape[1])
    for done in range(0, steps, BATCH):
        size = min(BATCH, steps - done)
        if not len(given):
            fill_words(key[0], key[1], STEP, first + done, words)
        for i in range(len(given)):
            for s in range(size):
                words[i, s] = given[i, done + s]
        alive[:], near[:] = np.uint32(1), NOT_NEAR
        if len(tables) > 5:  # the compiler knows
            for s in range(BATCH):
                context[s] = tables[5][min(done + s, tables[5].size - 1)]
        for i in range(gamma):
            row, drafts = emits[i], words[i + 1]
            padding = np.uint32(last.shape[1] + PADDING * i)
            if len(tables) == 5:
                table = entries[min(i, len(entries) - 1)]
                for s in range(BATCH):
                    found[s] = table[np.uint64(drafts[s] & mask)]
            else:
                for s in range(BATCH):
                    row[s] = np.uint32(context[s]) * width + (drafts[s] & mask)
                for s in range(BATCH):
                    found[s] = flat_entries[np.uint64(row[s])]
            for s in range(BATCH):
                word, low, high = drafts[s], halves[2 * s], halves[2 * s + 1]
                cut = np.uint32(high & ~last_bits) if word < low else np.uint32(high << np.uint32(16))
                near[s] = min(near[s], np.uint32(word ^ low), np.uint32(word ^ cut))
                alive[s] = np.uint32(alive[s] & np.uint32(word < cut))
                row[s] = min(word, low) & mask if alive[s] else padding + (word & np.uint32(PADDING - 1))
            if len(tables) > 5:
                for s in range(BATCH):
                    after = follow[np.uint64(context[s]), np.uint64(row[s] & mask)]
                    context[s] = after if alive[s] else context[s]
        drafts, row, nearest = words[0], emits[gamma], NOT_NEAR
        for s in range(BATCH):
            which = alive[s] if len(tables) == 5 else np.uint32(2 * context[s] + alive[s])
            row[s] = which * width + (drafts[s] & mask)
        for s in range(BATCH):
            halves[s] = flat[np.uint64(row[s])]
        for s in range(BATCH):
            word, low = drafts[s], halves[s]
            near[s] = min(near[s], np.uint32(word ^ low))
            nearest = min(nearest, near[s])
            row[s] = min(word, low) & mask
        if nearest <= mask | last_bits:
            begun = 0
            for s in range(size):
                if near[s] <= mask | last_bits:
                    if len(tables) > 5:
                        begun = tables[5][min(done + s, tables[5].size - 1)]
                    fill_words(key[0], key[1], REST, first + done + s, rests)
                    n = take_step(columns, cuts, follow, begun, words[:, s], rests[:, 0], tokens)
                    for i in range(gamma):
                        emits[i, s] = tokens[i] if i < n else last.shape[1] + PADDING * i
                    emits[gamma, s] = tokens[n]
        for i in range(len(out)):
            row, drawn_row = emits[i], out[i][done : done + size]
            for s in range(drawn_row.size):
                drawn_row[s] = np.int32(row[s]) if row[s] <= mask else np.int32(-1)
        if len(emitted):
            add_rows(emits, size, emitted)


@inner_kernel
def add_rows(emits, size, emitted):
    """Add steps to `emitted`, whose rows take turns: few additions wait for the one before."""
    rows = emitted.shape[0] - 1
    for i in range(len(emits)):
        row = emits[i]
        for s in range(0, BATCH, 8):
            for j in range(8):
                emitted[j & rows, row[s + j]] += 1
        for s in range(size, BATCH):
            emitted[0, row[s]] -= 1
