"""Counter-based random streams: Philox4x32-10, stateless; docs/randomness.md has the reasons, and the keys.

A uniform is a pure function of (key, purpose, step, index). So any step can be replayed alone, two rules can
use the same numbers, and neither threads, chunks, processes nor machines can change a result.

One call turns a counter of four 32-bit words, (slot, step mod 2^32, step div 2^32, purpose), and a key of two
into four words. They make three uniforms: each of the first three words, with ten bits from the fourth, is a
multiple of 2^-42 in [0, 1). Uniform number `index` of a step is part `index % 3` of slot `index // 3`.

Fixed pairs in integers take the words: word `index` is part `index % 4` of slot `index // 4`."""

from collections.abc import Sequence
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from specsim.core._kernels import inner_kernel, kernel

#: What a public function takes as `rng` (SPEC 7).
RandomSource = int | np.random.SeedSequence | np.random.Generator | None

#: The two key words.
Key = tuple[int, int]

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10
PER_SLOT = 3
WORD = 0xFFFFFFFF


class Purpose(IntEnum):
    """The use of a random number; streams of different purposes never share one."""

    CONTEXT = 0
    DRAFT = 1
    VERIFY = 2
    COUNT = 3
    STEP = 4
    REST = 5


def root_of(rng: RandomSource) -> int:
    """Reduce `rng` to one integer ≥ 0: an int is itself, anything else gives one below 2^53, exact in JSON;
    None is fresh entropy. Raises TypeError for another type, ValueError for a negative int."""
    kinds = int | np.integer | np.random.SeedSequence | np.random.Generator | None
    if isinstance(rng, bool) or not isinstance(rng, kinds):
        kind = type(rng).__name__
        raise TypeError(f"rng: expected an int, a Generator, a SeedSequence or None, got {kind}")
    if isinstance(rng, np.random.Generator):
        return int(rng.integers(2**53))
    if isinstance(rng, np.random.SeedSequence):
        return int(rng.generate_state(1, np.uint64)[0]) >> 11
    if rng is None:
        return root_of(np.random.SeedSequence())
    if rng < 0:
        raise ValueError(f"rng: a seed must be at least 0, got {rng}")
    return int(rng)


def key_of(root: int, cell: Sequence[int] = ()) -> Key:
    """The two key words of part `cell` (integers in [0, 2^32)) of the experiment seeded with `root`."""
    words = np.random.SeedSequence(root, spawn_key=tuple(cell)).generate_state(2, np.uint32)
    return int(words[0]), int(words[1])


def philox(counter: Sequence[int], key: Sequence[int]) -> tuple[int, int, int, int]:
    """Philox4x32-10 of four counter words and two key words, in Python integers."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        left, right = MULTIPLIERS[0] * c0, MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (right >> 32) ^ c1 ^ k0, right & WORD, (left >> 32) ^ c3 ^ k1, left & WORD
        k0, k1 = (k0 + WEYL[0]) & WORD, (k1 + WEYL[1]) & WORD
    return c0, c1, c2, c3


def uniform(key: Sequence[int], purpose: int, step: int, index: int) -> float:
    """Uniform number `index` of `step`: a multiple of 2^-42 in [0, 1)."""
    words = philox((index // PER_SLOT, step & WORD, step >> 32, purpose), key)
    part = index % PER_SLOT
    return (words[part] << 10 | words[3] >> 10 * part & 1023) * 2.0**-42


def word(key: Sequence[int], purpose: int, step: int, index: int) -> int:
    return philox((index // 4, step & WORD, step >> 32, purpose), key)[index % 4]


def uniforms(key: Key, purpose: int, first_step: int, steps: int, count: int) -> NDArray[np.float64]:
    """`count` uniforms for each of `steps` consecutive steps, shape [count, steps]: `uniform`, compiled."""
    out = np.empty((count, steps))
    fill_uniforms(*key, int(purpose), first_step, out)
    return out


@kernel
def fill_uniforms(k0, k1, purpose, first_step, out):
    """Fill out[index, s] (float64) with the uniforms of step first_step + s."""
    words = np.empty((4 * ((len(out) + 2) // 3), out.shape[1]), np.uint32)
    fill_words(k0, k1, purpose, first_step, words)
    for index in range(len(out)):
        slot, part = index // 3, index % 3
        leading, last, row = words[4 * slot + part], words[4 * slot + 3], out[index]
        for s in range(row.size):
            row[s] = (np.int64(leading[s]) << 10 | np.int64(last[s]) >> 10 * part & 1023) * 2.0**-42


@inner_kernel
def fill_words(k0, k1, purpose, first_step, words):
    """Fill words[index, s] (uint32, four rows for each slot) with those of step first_step + s."""
    steps, end = words.shape[1], 0
    key, purpose = (np.uint64(k0), np.uint64(k1)), np.uint64(purpose)
    while end < steps:  # in a stretch the high word of the step is constant, and parts are done once
        begin = end
        end = min(steps, begin + 4294967296 - (first_step + begin & 0xFFFFFFFF))
        low, high = np.uint64(first_step + begin & 0xFFFFFFFF), np.uint64(first_step + begin >> 32)
        for slot in range(len(words) // 4):
            rows = words[4 * slot : 4 * slot + 4]
            a, b, c, d = rows[0][begin:end], rows[1][begin:end], rows[2][begin:end], rows[3][begin:end]
            for s in range(a.size):
                w, x, y, z = philox_words(np.uint64(slot), low + np.uint64(s), high, purpose, key)
                a[s], b[s], c[s], d[s] = np.uint32(w), np.uint32(x), np.uint32(y), np.uint32(z)


@inner_kernel
def philox_words(c0, c1, c2, c3, key):
    """Four words, each in 64 bits: they are cut to 32 bits only where they are multiplied or read."""
    mask, by_32 = np.uint64(0xFFFFFFFF), np.uint64(32)
    m0, m1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
    w0, w1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
    key0, key1 = key
    for _ in range(10):
        left, right = m0 * (c0 & mask), m1 * (c2 & mask)
        c0, c1, c2, c3 = (right >> by_32) ^ c1 ^ key0, right, (left >> by_32) ^ c3 ^ key1, left
        key0 += w0
        key1 += w1
    return c0, c1, c2, c3
