"""A piece of p and q in one or two vector loops: the sums of its checksum, its words' bits, Σ p, Σ q and β.

Each kernel takes the words of p and of q, and the weight of the first number, and returns the two sums that
`_checksums` makes the checksum of, all words combined by "or", and the three sums of numbers. A piece is at
most `PIECE` words, of 16 bits, or of 32 for float32 and two numbers of 16 bits. It is small enough that a
second loop finds it in the first cache, and large enough that starting a loop costs little. The loops have no
branch and 32-bit lanes, so that the compiler vectorises them; one with wider lanes is apart, since it would
narrow the vectors of the others.

Numbers without a sign are in the order of their words, so the lesser of two is that with the lesser word. A
16-bit number is moved to where float32 has its exponent and fraction. That is the number itself for bfloat16,
whose exponent is float32's, and 2^-112 times the number for float16, whose exponent is biased by 15 and not
127: also for subnormal numbers, unless the processor was told to take those for zero (`keeps_subnormals`)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from specsim.core._kernels import Kernel, inner_kernel, inner_summary_kernel, kernel

#: Words that the loops take at a time, how many words ahead memory is fetched, and those of a cache line.
PIECE, AHEAD, LINE = 256, 1024, 16
LOW_HALF, HIGH_HALF = np.uint32(0xFFFF), np.uint32(0xFFFF0000)
#: Where float32 has the exponent and fraction of a float16 number.
FLOAT16_BITS = np.uint32(0x7FFF << 13)
FLOAT16_SCALE = 2.0**112
TINY = np.float32(2.0**-149)  #: float32's least number


def keeps_subnormals() -> bool:
    """Whether this thread computes with subnormal numbers; ``-ffast-math`` libraries may stop that."""
    return bool(TINY + TINY > 0)


@inner_kernel
def as_float32(word):
    return np.uint32(word).view(np.float32)


@inner_kernel
def as_bfloat16(word):
    """bfloat16 has float32's exponent: it is the upper half of one."""
    return np.uint32(np.uint32(word) << np.uint32(16)).view(np.float32)


@inner_summary_kernel
def as_float16(word):
    """float16's exponent is biased by 15, float32's by 127.

    A subnormal number, below 2^-14, has no implied 1, but counts in the steps of the next exponent: from x,
    with the 1 and the smaller steps, to 2x - 2^-14, which is below x just where x is below 2^-14. In whatever
    order it is computed, the lesser of the two is exact; no word gives infinity or NaN."""
    moved = np.uint32(np.uint32(word) << np.uint32(13))
    normal = np.uint32(moved + np.uint32(112 << 23)).view(np.float32)
    return min(normal, normal + normal - np.float32(2.0**-14))


@inner_kernel
def fold(word):
    """The checksum's f."""
    return np.uint32(word ^ np.uint32(word >> np.uint32(15)))


def _make_single(value: Kernel) -> Kernel:
    """Words that hold one number each, value(word)."""

    def sum_words(p_words, q_words, weight):
        part = q_part = bits = np.uint32(0)
        p_sum = q_sum = np.float32(0)
        for i in range(p_words.size):
            x = np.uint32(p_words[i])
            y = np.uint32(q_words[i])
            bits = np.uint32(bits | np.uint32(x | y))
            p_sum += value(x)
            q_sum += value(y)
            x = fold(x)
            y = fold(y)
            part = np.uint32(part + np.uint32(np.uint32(x + y) * weight))
            q_part = np.uint32(q_part + y)
            weight = np.uint32(weight + np.uint32(2))
        return part, q_part, bits, p_sum, q_sum

    def overlap_of_words(p_words, q_words):
        overlap = 0.0
        for i in range(p_words.size):
            overlap += np.float64(value(min(np.uint32(p_words[i]), np.uint32(q_words[i]))))
        return overlap

    sums, overlap = inner_summary_kernel(sum_words), inner_summary_kernel(overlap_of_words)

    def measure_words(p_words, q_words, weight):
        part, q_part, bits, p_sum, q_sum = sums(p_words, q_words, weight)
        return part, q_part, bits, np.float64(p_sum), np.float64(q_sum), overlap(p_words, q_words)

    return inner_summary_kernel(measure_words)


@inner_kernel
def _low_float16(word):
    return np.uint32(np.uint32(word << np.uint32(13)) & FLOAT16_BITS)


@inner_kernel
def _high_float16(word):
    return np.uint32(np.uint32(word >> np.uint32(3)) & FLOAT16_BITS)


@inner_kernel
def _low_bfloat16(word):
    return np.uint32(word << np.uint32(16))


@inner_kernel
def _high_bfloat16(word):
    return np.uint32(word & HIGH_HALF)


def _make_pairs(low: Kernel, high: Kernel, scale: float) -> Kernel:
    """Words that hold two numbers, low(word) and high(word) times `scale`, whose weights are w and w + 2."""

    def sum_words(p_words, q_words, weight):
        """Halves of words without signs are added by adding the words; over both halves of words y, h the
        upper ones, it is Σ y - 2^16 Σ h + Σ h."""
        part = upper = q_words_sum = q_upper = bits = np.uint32(0)
        p_sum = q_sum = overlap = np.float32(0)
        for i in range(p_words.size):
            x = np.uint32(p_words[i])
            y = np.uint32(q_words[i])
            bits = np.uint32(bits | np.uint32(x | y))
            p_low = low(x)
            p_high = high(x)
            q_low = low(y)
            q_high = high(y)
            p_sum += as_float32(p_low) + as_float32(p_high)
            q_sum += as_float32(q_low) + as_float32(q_high)
            overlap += as_float32(min(p_low, q_low)) + as_float32(min(p_high, q_high))
            both = np.uint32(x + y)
            above = np.uint32(both >> np.uint32(16))
            part = np.uint32(part + np.uint32(np.uint32(np.uint32(both & LOW_HALF) + above) * weight))
            upper = np.uint32(upper + above)
            q_words_sum = np.uint32(q_words_sum + y)
            q_upper = np.uint32(q_upper + np.uint32(y >> np.uint32(16)))
            weight = np.uint32(weight + np.uint32(4))
        part = np.uint32(part + np.uint32(upper + upper))
        q_part = np.uint32(np.uint32(q_words_sum - np.uint32(q_upper << np.uint32(16))) + q_upper)
        return part, q_part, bits, p_sum, q_sum, overlap

    def overlap_of_words(p_words, q_words):
        overlap = 0.0
        for i in range(p_words.size):
            x = np.uint32(p_words[i])
            y = np.uint32(q_words[i])
            overlap += np.float64(as_float32(min(low(x), low(y))))
            overlap += np.float64(as_float32(min(high(x), high(y))))
        return overlap

    sums, exact_overlap = inner_summary_kernel(sum_words), inner_summary_kernel(overlap_of_words)

    def measure_words(p_words, q_words, weight):
        """Sums up to 1 of float16, multiples of 2^-24, are exact in float32; others take float64."""
        part, q_part, bits, p_sum, q_sum, single = sums(p_words, q_words, weight)
        overlap = np.float64(single)
        if scale == 1.0 or overlap * scale >= 1.0:
            overlap = exact_overlap(p_words, q_words)
        return part, q_part, bits, np.float64(p_sum) * scale, np.float64(q_sum) * scale, overlap * scale

    return inner_summary_kernel(measure_words)


PAIRS = {
    "float16": _make_pairs(_low_float16, _high_float16, FLOAT16_SCALE),
    "bfloat16": _make_pairs(_low_bfloat16, _high_bfloat16, 1.0),
}
VALUES = {"float32": as_float32, "float16": as_float16, "bfloat16": as_bfloat16}
#: Of words that hold one number.
SINGLE = {name: _make_single(value) for name, value in VALUES.items()}


def bits_of(rows: NDArray[Any]) -> NDArray[Any]:
    return rows.view(np.uint32 if rows.itemsize == 4 else np.uint16)


def decode(rows: NDArray[Any]) -> NDArray[np.float32]:
    """The stored probabilities as float32, exactly; float32 rows are returned unchanged."""
    if rows.itemsize == 4:
        return rows
    decoded = np.empty(rows.shape, np.float32)
    _DECODE[rows.dtype.name](bits_of(rows).ravel(), decoded.ravel())
    return decoded


def _make_decoder(value: Kernel) -> Kernel:
    def decode_words(words, out):
        for i in range(words.size):
            out[i] = value(words[i])

    return kernel(decode_words)


_DECODE = {name: _make_decoder(value) for name, value in VALUES.items()}
