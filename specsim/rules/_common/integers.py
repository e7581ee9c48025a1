"""Steps of a fixed pair in integers, for rules that test each drafted token against a probability of its own.

**The law.** Probabilities are integers, in units of 2^-62, and so are the random numbers of a step: number 0
draws the last token, number 2i + 1 the token at position i, and number 2i + 2 tests it. The token is accepted
if the latter is below its chance. So rules that share p and q draft the same tokens with the same numbers, as
do drafts of any length.

**The table.** To draw, the last bits of a number's word choose one of 2^k columns of an alias table, and all
of its other bits are the coin. Columns have their bits in the same order: threshold, alias in the last k bits
of the word, rest of the threshold. An *entry* has the word of a column alone, and that of a draft the first
16 bits of two chances, those of its alias and of the column itself. So one load decides a draft and its test.

**The kernel.** It goes position by position over some hundred steps, which the first-level cache holds, in
short loops without a branch: look-ups that miss the cache overlap, and the arithmetic is vectorised. It draws
every token and every test of a step, also behind a rejection. Where the bits that it compares are equal,
which is rare, it takes the step again with all bits of its numbers."""

import numpy as np

from specsim.core._kernels import inner_kernel, kernel
from specsim.core._streams import fill_numbers, fill_words
from specsim.core._types import Floats, Ints
from specsim.core.distributions import alias_columns

#: The bits of a number, and those of them that follow its word.
BITS, REST = 62, 30
#: Steps that are taken together.
BATCH = 512
#: Counts of what a rejected position emits, in turn: no addition waits for the one before.
PADDING = 16


def as_integers(weights: Floats) -> Ints:
    """Weights ≥ 0 [V] as shares of 2^62, the sum, each within two units; 0 remains 0.

    Shares of sums are found by a long division in digits of 31 bits, with remainders modulo 2^64."""
    parts = np.rint(np.ldexp(weights, BITS - np.frexp(weights.sum())[1])).astype(np.int64)
    quotient, remainder = np.zeros_like(parts), parts.cumsum()
    total = remainder[-1]
    for _ in range(2):
        digits = np.floor(remainder / total * 2.0**31).astype(np.int64)
        quotient, remainder = (quotient << 31) + digits, (remainder << 31) - digits * total
    return np.diff(quotient, prepend=0)


def columns_of(weights: Floats) -> Ints:
    """The alias table of weights ≥ 0 [V], of 2^k ≥ V columns."""
    k = int(weights.size - 1).bit_length()
    shares = np.zeros(1 << k, dtype=np.int64)
    shares[: weights.size] = as_integers(weights)
    full = 1 << BITS - k
    thresholds, aliases = alias_columns(shares, full)
    thresholds[thresholds == full] = 0  # a full column is its own alias
    return (thresholds >> REST << k | aliases) << REST | thresholds & (1 << REST) - 1


def tables(draft: Floats, accept: Floats, recovered: Floats, bonus: Floats) -> tuple[np.ndarray, ...]:
    """Entries of drafts uint64 [r, 2^k] and of last tokens uint32 [2, 2^k]; columns and chances in full.

    accept [r, V] has the chance of each token by position, of which the last row is for all that follow."""
    columns = np.stack([columns_of(weights) for weights in (draft, recovered, bonus)])
    chances = np.zeros((len(accept), columns.shape[1]), dtype=np.int64)
    chances[:, : draft.size] = np.rint(np.ldexp(accept, BITS))
    words = (columns >> REST).astype(np.uint64)
    first = np.minimum(chances >> BITS - 16, 0xFFFF).astype(np.uint64)
    aliases = words[0] & np.uint64(columns.shape[1] - 1)
    entries = words[0] | first[:, aliases] << np.uint64(32) | first << np.uint64(48)
    return entries, words[1:].astype(np.uint32), columns, chances


@inner_kernel
def drawn(columns, number):
    """The token that a number draws."""
    mask = columns.size - 1
    column = (number >> REST) & mask
    bits = columns[column]
    coin = ~(mask << REST)
    return column if (number & coin) < (bits & coin) else (bits >> REST) & mask


@inner_kernel
def take_step(columns, chances, numbers, tokens):
    """Fill `tokens` with what the step of these numbers emits; return how many are accepted."""
    gamma, n = tokens.size - 1, 0
    while n < gamma:
        x = drawn(columns[0], numbers[2 * n + 1])
        if not numbers[2 * n + 2] < chances[min(n, chances.shape[0] - 1), x]:
            break
        tokens[n] = x
        n += 1
    tokens[n] = drawn(columns[2 if n == gamma else 1], numbers[0])
    return n


@inner_kernel
def compare(low, high, word, test, mask):
    """From the halves of an entry: the token, whether it is accepted, whether equal bits leave it open."""
    own = word < low
    chance = np.uint32(high & np.uint32(0xFFFF0000)) if own else np.uint32(high << np.uint32(16))
    equal = np.int32(((word ^ low) & ~mask) == 0) | np.int32((test ^ chance) >> np.uint32(16) == 0)
    return np.int32((word if own else low) & mask), np.int32(test < chance), equal


@kernel
def take_steps(entries, last, columns, chances, k0, k1, first, size, words, out, scratch):
    """Fill out[:γ, :size] with the accepted tokens of the steps from `first` on, and other positions i with
    numbers from -1 - 16·i down to -16 - 16·i; out[γ] with their last tokens. The words are given."""
    found, alive, open, numbers, tokens = scratch
    gamma, mask, halves = out.shape[0] - 1, np.uint32(last.shape[1] - 1), found.view(np.uint32)
    alive[:], open[:] = 1, 0
    for i in range(gamma):
        table, drafts, tests, row = (
            entries[min(i, len(entries) - 1)],
            words[2 * i + 1],
            words[2 * i + 2],
            out[i],
        )
        for s in range(size):
            found[s] = table[np.uint64(drafts[s] & mask)]
        for s in range(size):
            token, passed, equal = compare(halves[2 * s], halves[2 * s + 1], drafts[s], tests[s], mask)
            open[s] |= equal & alive[s]
            alive[s] &= passed
            row[s] = token if alive[s] else np.int32(-1 - 16 * i - (s & 15))
    table, drafts, row = last.ravel(), words[0], out[gamma]
    for s in range(size):
        halves[s] = table[np.uint64(drafts[s] & mask) + np.uint64(last.shape[1]) * np.uint64(alive[s])]
    for s in range(size):
        open[s] |= np.int32(((drafts[s] ^ halves[s]) & ~mask) == 0)
        row[s] = np.int32(min(drafts[s], halves[s]) & mask)
    any_open = 0
    for s in range(size):
        any_open |= open[s]
    for s in range(size if any_open else 0):
        if open[s]:
            fill_numbers(k0, k1, first + s, words[:, s], numbers)
            n = take_step(columns, chances, numbers, tokens)
            for i in range(gamma):
                out[i, s] = tokens[i] if i < n else -1 - 16 * i
            out[gamma, s] = tokens[n]


@kernel
def draw_steps(entries, last, columns, chances, k0, k1, first, tokens, accepted):
    """Fill tokens[γ+1, S], padded with -1, and accepted[S] with the steps from `first` on."""
    gamma, done = tokens.shape[0] - 1, 0
    words, out, scratch = buffers(gamma)
    while done < accepted.size:
        size = batch_size(first + done, first + accepted.size)
        fill_words(k0, k1, first + done, size, words)
        take_steps(entries, last, columns, chances, k0, k1, first + done, size, words, out, scratch)
        for s in range(size):
            n = 0
            for i in range(gamma):
                tokens[i, done + s] = max(out[i, s], -1)
                n += out[i, s] >= 0
            tokens[gamma, done + s] = -1
            tokens[n, done + s] = out[gamma, s]
            accepted[done + s] = n
        done += size


@kernel
def count_steps(entries, last, columns, chances, k0, k1, first, steps, gamma, emitted):
    """Add what these steps emit to emitted[r, 16γ+2^k], r being 1 or 8: padding, 16 columns for each
    position, the last one first, then tokens. Additions are to rows and columns in turn: none waits for the
    one before."""
    words, out, scratch = buffers(gamma)
    start, rows = first, emitted.shape[0] - 1
    while start < first + steps:
        size = batch_size(start, first + steps)
        fill_words(k0, k1, start, size, words)
        take_steps(entries, last, columns, chances, k0, k1, start, size, words, out, scratch)
        for i in range(gamma + 1):
            row = out[i]
            for s in range(0, size - 7, 8):
                for j in range(8):
                    emitted[j & rows, np.uint32(row[s + j] + 16 * gamma)] += 1
            for s in range(size - size % 8, size):
                emitted[0, np.uint32(row[s] + 16 * gamma)] += 1
        start += size


@kernel
def buffers(gamma):
    """Words, `out` and scratch space of `take_steps`."""
    words, out = (
        np.empty((4 * ((2 * gamma + 4) // 4), BATCH), np.uint32),
        np.empty((gamma + 1, BATCH), np.int32),
    )
    flags, numbers = np.empty((2, BATCH), np.int32), np.empty((2, 2 * gamma + 1), np.int64)
    return words, out, (np.empty(BATCH, np.uint64), flags[0], flags[1], numbers[0], numbers[1, : gamma + 1])


@inner_kernel
def batch_size(first, end):
    """How many of the steps [first, end) to take together: those that share their high word."""
    return min(BATCH, end - first, 4294967296 - (first & 0xFFFFFFFF))
