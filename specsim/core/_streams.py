"""Counter-based random streams: Philox4x32-10, stateless.

A uniform is a pure function of (key, purpose, step, index). So any step can be replayed alone, two rules can
use the same numbers, and neither threads, chunks, processes nor machines can change a result.

The generator is that of Salmon, Moraes, Dror & Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011),
the one in cuRAND and PyTorch. One call turns a counter of four 32-bit words and a key of two into four words.
They make three uniforms: each of the first three words, with ten bits more from the fourth, is a multiple of
2^-42 in [0, 1). Two uniforms of 53 bits would cost half as much again, and a resolution of 2^-42 cannot be
noticed in any feasible number of steps. The counter is (slot, step mod 2^32, step div 2^32, purpose); uniform
number `index` of a step is part `index % 3` of slot `index // 3`.

The key comes from `numpy.random.SeedSequence(root, spawn_key=cell)`: `root` is the user's seed, which results
record; `cell` names the part of an experiment.
"""

from collections.abc import Sequence
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from specsim.core._kernels import kernel

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
    """The use of a uniform; streams of different purposes never share a number."""

    CONTEXT = 0
    DRAFT = 1
    VERIFY = 2
    COUNT = 3


def root_of(rng: RandomSource) -> int:
    """Reduce `rng` to one integer ≥ 0: an int is itself, anything else gives one below 2^53.

    None is fresh entropy. JSON readers represent integers exactly up to 2^53. Raises TypeError for anything
    else, ValueError for a negative int.

    >>> root_of(7)
    7
    """
    if isinstance(rng, bool) or not isinstance(
        rng, int | np.integer | np.random.SeedSequence | np.random.Generator | None
    ):
        raise TypeError(
            f"rng: expected an int, a Generator, a SeedSequence or None, got {type(rng).__name__}"
        )
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
    """Philox4x32-10 of four counter words and two key words, in Python integers.

    >>> [hex(word) for word in philox((0, 0, 0, 0), (0, 0))]
    ['0x6627e8d5', '0xe169c58d', '0xbc57ac4c', '0x9b00dbd8']
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        left, right = MULTIPLIERS[0] * c0, MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (right >> 32) ^ c1 ^ k0, right & WORD, (left >> 32) ^ c3 ^ k1, left & WORD
        k0, k1 = (k0 + WEYL[0]) & WORD, (k1 + WEYL[1]) & WORD
    return c0, c1, c2, c3


def uniform(key: Sequence[int], purpose: int, step: int, index: int) -> float:
    """Uniform number `index` of `step`: a multiple of 2^-42 in [0, 1).

    >>> uniform((0, 0), purpose=0, step=0, index=0)
    0.3990464708676882
    """
    words = philox((index // PER_SLOT, step & WORD, step >> 32, purpose), key)
    part = index % PER_SLOT
    return (words[part] << 10 | words[3] >> 10 * part & 1023) * 2.0**-42


def uniforms(key: Key, purpose: int, first_step: int, steps: int, count: int) -> NDArray[np.float64]:
    """`count` uniforms for each of `steps` consecutive steps, shape [count, steps]: `uniform`, compiled."""
    out = uniforms_buffer(count, steps)
    fill_uniforms(*key, int(purpose), first_step, out)
    return out[:count]


def uniforms_buffer(count: int, steps: int) -> NDArray[np.float64]:
    """An array for `fill_uniforms` with room for `count` uniforms a step: whole slots."""
    return np.empty((-(-count // PER_SLOT) * PER_SLOT, steps))


@kernel
def fill_uniforms(k0, k1, purpose, first_step, out):
    """Fill out[index, s] (float64, three rows for each slot) with the uniforms of step first_step + s."""
    steps = out.shape[1]
    # the high word of the step is constant in a stretch, so the compiler does parts of three rounds only once
    stretch = min(steps, 4294967296 - (first_step & 0xFFFFFFFF))
    for slot in range(out.shape[0] // 3):
        a, b, c = out[3 * slot], out[3 * slot + 1], out[3 * slot + 2]
        _fill_slot(k0, k1, purpose, slot, first_step, a[:stretch], b[:stretch], c[:stretch])
        if stretch < steps:
            _fill_slot(k0, k1, purpose, slot, first_step + stretch, a[stretch:], b[stretch:], c[stretch:])


@kernel
def _fill_slot(k0, k1, purpose, slot, first_step, first, second, third):
    """The three uniforms of one slot, for steps that share their high word.

    The loop over steps has no branch, so that the compiler vectorises it. Words are kept in 64-bit lanes and
    cut to 32 bits only where they are multiplied or read."""
    mask = np.uint64(0xFFFFFFFF)
    half = np.uint64(32)
    ten = np.uint64(10)
    low_bits = np.uint64(0x3FF)
    high_bits = np.uint64(0x3FFFFFFFC00)  # bits 10 to 41
    m0 = np.uint64(0xD2511F53)
    m1 = np.uint64(0xCD9E8D57)
    w0 = np.uint64(0x9E3779B9)
    w1 = np.uint64(0xBB67AE85)
    unit = 1.0 / 4398046511104.0
    step_low = np.uint64(first_step & 0xFFFFFFFF)
    step_high = np.uint64(first_step >> 32)
    for s in range(first.size):
        c0 = np.uint64(slot)
        c1 = step_low + np.uint64(s)
        c2 = step_high
        c3 = np.uint64(purpose)
        key0 = np.uint64(k0)
        key1 = np.uint64(k1)
        for _ in range(10):
            left = m0 * (c0 & mask)
            right = m1 * (c2 & mask)
            c0 = (right >> half) ^ c1 ^ key0
            c1 = right
            c2 = (left >> half) ^ c3 ^ key1
            c3 = left
            key0 += w0
            key1 += w1
        first[s] = np.int64(c0 << ten & high_bits | c3 & low_bits) * unit
        second[s] = np.int64(c1 << ten & high_bits | c3 >> ten & low_bits) * unit
        third[s] = np.int64(c2 << ten & high_bits | c3 >> np.uint64(20) & low_bits) * unit
