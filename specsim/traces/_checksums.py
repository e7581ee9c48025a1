"""One pass over rows: β, the row's checksum, and whether its numbers are probabilities.

A row is measured piece by piece (`_pieces`), float32 at about the speed of memory; 16-bit rows, with twice as
many numbers per byte, are bound by arithmetic, and are read two numbers at a time where their length is even.

The checksum of a row of p, in words x_i of 32 bits (or 16), and of q, in words y_i, is the sum mod 2^32 of
f(x_i)·(2i + 1) + f(y_i)·(2i + 1 + `Q_OFFSET`), f(x) = x ⊕ (x >> 15), taken in blocks that Horner's rule
combines mod 2^64. Those of a truncated row are taken column by column, with tokens, and combined likewise.
Every weight is odd, and f carries the high bits, which a product mod 2^32 would drop, down to the low ones.
So every change of a single word is detected, and other changes but for one in 2^32. It guards against
accidents, not against an adversary."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from specsim.core._files import read_table
from specsim.core._kernels import Kernel, fetch, inner_summary_kernel, kernel, summary_kernel
from specsim.core._types import Floats, Ints
from specsim.traces._format import LABELS, AnyColumns, Columns, Layout, TruncatedColumns, sum_tolerance
from specsim.traces._pieces import AHEAD, LINE, PAIRS, PIECE, SINGLE, bits_of, decode, fold, keeps_subnormals
from specsim.traces._truncated import NO_TOKEN, bound_rows

#: The faults of a row.
SOUND, BAD_VALUE, BAD_SUM, BAD_LABEL, BAD_LIST = 0, 1, 2, 3, 4
FAULTS: dict[int, str] = dict(enumerate(read_table("kinds")["faults"].values(), BAD_VALUE))

#: Numbers of a block of the checksum.
BLOCK = 2048
HORNER = np.uint64(0x9E3779B97F4A7C15)
Q_OFFSET = np.uint32(0x85EBCA76)
STEP_FACTOR = np.uint64(0x165667B19E3779F9)
CONTEXT_FACTOR = np.uint64(0x85EBCA77C2B2AE63)
PLACE_FACTOR = np.uint64(0x27D4EB2F165667C5)
HALF = np.uint64(32)
NOT_TESTED = np.uint8(0xFF)


class Measured(NamedTuple):
    """The result of one pass over R rows."""

    beta: Floats  #: [2, R] Σ min(p, q): its least and its largest value, equal for dense rows
    checksum: NDArray[np.uint64]  #: [R]
    fault: NDArray[np.uint8]  #: [R] one of `SOUND`, `BAD_VALUE`, `BAD_SUM`, `BAD_LABEL`, `BAD_LIST`


def measure(columns: AnyColumns, step_ids: Ints, layout: Layout) -> Measured:
    """Measure the rows of whole steps, whose ids should be `step_ids` ([R / (γ + 1)])."""
    # read-only, as mapped files are: numba compiles writable arrays separately
    views: Any = [column.view() for column in columns]
    for view in views:
        view.flags.writeable = False
    columns = type(columns)(*views)
    rows = columns.step.size
    found = Measured(np.empty((2, rows)), np.empty(rows, np.uint64), np.empty(rows, np.uint8))
    # kernels in plain Python warn of modular arithmetic, and of sums that are not finite
    with np.errstate(over="ignore", invalid="ignore"):
        if isinstance(columns, Columns):
            bits, outside = (bits_of(columns.p), bits_of(columns.q)), _outside(columns.p)
            measured = sum_tolerance(layout), found.beta[0], *found[1:]
            if layout.dtype in _MEASURE_PAIRS and layout.vocab_size % 2 == 0 and keeps_subnormals():
                pairs = (word.view(np.uint32) for word in bits)
                _MEASURE_PAIRS[layout.dtype](*pairs, outside | outside << 16, *measured)
            else:
                _MEASURE_DENSE[layout.dtype](*bits, outside, *measured)
            if (bad := np.flatnonzero(found.fault == BAD_VALUE)).size:  # halves were summed without signs
                total = np.full(bad.size, HORNER)
                for low in range(0, layout.vocab_size, BLOCK):
                    p, q = (word[bad, low : low + BLOCK] for word in bits)
                    total = total * HORNER + (_weighted(p) + _weighted(q, Q_OFFSET))
                found.checksum[bad] = total
            found.beta[1] = found.beta[0]
        else:
            _measure_truncated(columns, layout, found)
        labels = [column.view(f"u{column.itemsize}") for column in columns[: len(LABELS)]]
        wanted = step_ids.view(np.uint64), layout.vocab_size, layout.flags
        _measure_labels(*labels, *wanted, found.checksum, found.fault)
    if not layout.bonus and isinstance(columns, Columns):
        found.beta[:, layout.gamma :: layout.rows_per_step] = [[0.0], [1.0]]
    return found


def _measure_truncated(columns: TruncatedColumns, layout: Layout, found: Measured) -> None:
    p, q = decode(columns.p), decode(columns.q)
    p_tokens, q_tokens = columns.p_tokens.view(np.uint32), columns.q_tokens.view(np.uint32)
    mass = np.empty(found.beta.shape)
    drafted = columns.token.view(np.uint32)
    bound_rows(p_tokens, p, q_tokens, q, drafted, np.uint32(layout.vocab_size), found.beta, mass, found.fault)
    with np.errstate(invalid="ignore"):
        listed_wrong = (found.fault > 0) | (mass > 1.0 + sum_tolerance(layout)).any(axis=0)
    words = [bits_of(columns.p), bits_of(columns.q)]
    value_wrong = np.any([((bits & _outside(columns.p)) != 0).any(axis=1) for bits in words], axis=0)
    found.fault[:] = np.where(value_wrong, BAD_VALUE, np.where(listed_wrong, BAD_LIST, SOUND))
    found.checksum[:] = 0
    for part in (*words, p_tokens, q_tokens):
        found.checksum[:] = (found.checksum + np.uint64(1)) * HORNER + _weighted(part)


def _outside(rows: NDArray[Any]) -> Any:
    """The bits that are clear in every number in [0, 2): the sign and the exponent's top bit."""
    return np.uint32(0xC0000000 if rows.itemsize == 4 else 0xC000)


def _make_measure(measure_piece: Kernel, numbers: int) -> Kernel:
    """The pass over rows of words that hold one or two `numbers` each."""
    block = BLOCK // numbers

    def measure_dense(p_bits, q_bits, outside, tolerance, beta, checksum, fault):
        """Fill beta, the checksum of p and q alone, not final for bits `outside`, and the fault of rows."""
        words = p_bits.shape[1]
        for row in range(p_bits.shape[0]):
            overlap = p_total = q_total = 0.0
            total = HORNER
            union = np.uint32(0)
            for start in range(0, words, block):
                part = q_part = np.uint32(0)
                for first in range(start, min(start + block, words), PIECE):
                    # slices from 0 on: else the compiler would not make tight vector loops
                    end = min(first + PIECE, start + block)
                    p_words = p_bits[row, first:end]
                    q_words = q_bits[row, first:end]
                    for i in range(0, p_words.size, LINE):
                        fetch(p_words, AHEAD + i)
                        fetch(q_words, AHEAD + i)
                    weight = np.uint32(1 + 2 * numbers * (first - start))
                    more, q_more, bits, p_sum, q_sum, least_sum = measure_piece(p_words, q_words, weight)
                    part = np.uint32(part + more)
                    q_part = np.uint32(q_part + q_more)
                    union = np.uint32(union | bits)
                    p_total += p_sum
                    q_total += q_sum
                    overlap += least_sum
                total = total * HORNER + np.uint64(np.uint32(part + np.uint32(q_part * Q_OFFSET)))
            beta[row] = overlap
            checksum[row] = total
            if np.uint32(union & outside) != 0:
                fault[row] = BAD_VALUE
            elif abs(p_total - 1.0) > tolerance or abs(q_total - 1.0) > tolerance:
                fault[row] = BAD_SUM
            else:
                fault[row] = SOUND

    return inner_summary_kernel(measure_dense)


_MEASURE_DENSE = {dtype: _make_measure(piece, numbers=1) for dtype, piece in SINGLE.items()}
#: Of rows with an even number of numbers.
_MEASURE_PAIRS = {dtype: _make_measure(piece, numbers=2) for dtype, piece in PAIRS.items()}


def _weighted(words: NDArray[Any], offset: Any = 0) -> NDArray[np.uint32]:
    """The sum [R], modulo 2^32, of f of the words [R, n], with the weights 1, 3, 5, … and more."""
    weights = np.arange(1, 2 * words.shape[1], 2, dtype=np.uint32) + offset
    return np.asarray(fold.plain(words.astype(np.uint32)) @ weights)


@kernel
def _measure_labels(step, context, position, token, accepted, step_ids, vocab_size, flags, checksum, fault):
    """Add the labels, as unsigned views, to each row's checksum; check that they describe `step_ids`."""
    stride = step.size // step_ids.size
    for s in range(step_ids.size):
        first = s * stride
        testing = flags  # until a rejection, or the bonus position
        for j in range(stride):
            row = first + j
            place = np.uint64(np.uint64(token[row]) << HALF) | np.uint64(position[row])
            checksum[row] += (
                step[row] * STEP_FACTOR
                + context[row] * CONTEXT_FACTOR
                + np.uint64(place ^ np.uint64(place >> HALF)) * PLACE_FACTOR
                + np.uint64(accepted[row])
            )
            bonus = j == stride - 1
            testing = testing and not bonus
            fits = step[row] == step_ids[s] and context[row] == context[first] and position[row] == j
            fits = fits and (token[row] < vocab_size or (bonus and token[row] == NO_TOKEN))
            fits = fits and (not bonus or stride == 1 or token[row] == NO_TOKEN)
            fits = fits and (accepted[row] <= 1 if testing else accepted[row] == NOT_TESTED)
            if fault[row] == SOUND and not fits:
                fault[row] = BAD_LABEL
            testing = testing and accepted[row] == 1


@summary_kernel
def normalise(rows, places, out):
    """Put each of rows (float32 [R, V]), divided by its own float64 sum, at out[places[row]] (float64)."""
    for row in range(rows.shape[0]):
        source = rows[row]
        target = out[places[row]]
        total = 0.0
        for x in range(source.size):
            total += np.float64(source[x])
        for x in range(source.size):
            target[x] = np.float64(source[x]) / total
