"""The uniforms of `specsim.core._streams`, computed on the device, a step at a time."""

import numpy as np

from specsim.core._cuda import cuda
from specsim.core._streams import MULTIPLIERS, PER_SLOT, ROUNDS, WEYL

M0, M1 = (np.uint64(word) for word in MULTIPLIERS)
W0, W1 = (np.uint64(word) for word in WEYL)
LOW, BY_32 = np.uint64(0xFFFFFFFF), np.uint64(32)
FRACTION = np.uint64(1023)


@cuda.jit(device=True)
def philox(c0, c1, c2, c3, k0, k1):
    """Philox4x32-10, in words of 32 bits, which a GPU multiplies to 64 bits in one instruction."""
    for _ in range(ROUNDS):
        left, right = M0 * np.uint64(c0), M1 * np.uint64(c2)
        c0, c1, c2, c3 = (
            np.uint32(np.uint32(right >> BY_32) ^ c1 ^ k0),
            np.uint32(right & LOW),
            np.uint32(np.uint32(left >> BY_32) ^ c3 ^ k1),
            np.uint32(left & LOW),
        )
        k0, k1 = np.uint32((k0 + W0) & LOW), np.uint32((k1 + W1) & LOW)
    return c0, c1, c2, c3


@cuda.jit(device=True)
def fill_uniforms(k0, k1, purpose, step, out):
    """Fill `out`, whole slots, with the first uniforms of a step."""
    low, high = np.uint32(step & 0xFFFFFFFF), np.uint32(step >> 32)
    for slot in range(out.size // PER_SLOT):
        a, b, c, rest = philox(np.uint32(slot), low, high, np.uint32(purpose), k0, k1)
        out[3 * slot] = uniform(a, rest)
        out[3 * slot + 1] = uniform(b, rest >> np.uint32(10))
        out[3 * slot + 2] = uniform(c, rest >> np.uint32(20))


@cuda.jit(device=True)
def uniform(word, rest):
    """A word, and ten bits of `rest` below it, as a multiple of 2^-42: all of it is exact."""
    return np.float64(np.uint64(word) << np.uint64(10) | np.uint64(rest) & FRACTION) * 2.0**-42
