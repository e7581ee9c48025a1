"""The parts of a transformer whose next-token distribution is a given one; `architectures.py` joins them.

The residual stream has these coordinates, each 0, 1 or -1:

- constants, which are 1; the first of them is called *one*,
- the code of the token, ±1 by the digits of its number,
- a mark, 1 for an opener and -1 for other tokens, if the distribution reads the opener,
- for each other token that is read a *slot*, 0 until an attention head or a state copies its code there, and
  as many *holders*, which are 1 until then,
- for a distribution given as a table, a unit vector of the context, 0 until the MLP writes it, and a holder
  of it.

So the number of coordinates that are not 0 never changes. There are enough constants to make the mean square
a power of 4: then each norm multiplies by a power of two, without rounding in any dtype.

For a table, each unit of the MLP is an AND gate of one context, and the head's column of that context has its
logits. Otherwise the logits are linear in the codes, and the MLP is empty. All weights are numbers that
bfloat16 and float16 hold."""

from dataclasses import dataclass
from itertools import count

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from specsim.core._types import Floats
from specsim.engines._planted.law import AdditiveLogits, Law, TableLogits, code_bits, sign_codes

#: Widths are multiples of this.
UNIT = 64
#: The logit of an id that never comes.
NEVER = -8192.0
#: Input of an open gate. Its output is rounded to the same number, that of a closed gate is below e^-57.
GATE = 64.0

Tensor = NDArray[np.float32]


# Attention heads that look at one position: a distance back, or at the opener. With rotary position
# embeddings the score of a query at one position and a key δ positions before it is Σ_i a·cos(δ·ω_i - φ_i),
# where φ_i is the angle by which the query was turned in plane i beforehand. With φ_i = d·ω_i, and keys that
# are the same everywhere, it is largest at δ = d. The weights of all other positions are below e^-40 of that
# one's, also after the rounding of bfloat16.

HEAD_SIZE = 64
THETA = 10000.0
FREQUENCIES = THETA ** (-np.arange(HEAD_SIZE // 2) / (HEAD_SIZE // 2))
#: Least difference of the scores of the position looked at and any other.
SEPARATION = 40.0
#: Largest amplitude of a plane: scores of 32 planes, 8 times as large before they are scaled, fit in float16.
MOST_AMPLITUDE = 128
#: Bound on the error of the difference of two scores, in amplitudes for each plane, where queries, keys,
#: cosines, products and scores are rounded to the 8 bits of bfloat16.
ROUNDING = 2.0**-5


@dataclass(frozen=True, eq=False)
class Head:
    """A query and a key, each [64]; dimensions i and i + 32 are plane i.

    All keys are alike, or those of all tokens but openers are 0."""

    query: Floats
    key: Floats


def look_back(distance: int, context: int) -> Head:
    """A head that looks `distance` positions back, in texts of up to `context` positions.

    It uses as many of the fastest planes as make the position differ most from all others."""
    others = np.delete(np.arange(context), distance) - distance
    margins = (1.0 - np.cos(others[:, None] * FREQUENCIES)).cumsum(axis=1).min(axis=0)
    return _head(margins, f"the token {distance} back", distance * FREQUENCIES)


def look_at_oldest(window: int) -> Head:
    """A head that looks at the oldest of the last `window` positions, and would rather look one further."""
    others = window - np.arange(window - 1)
    shown = np.cos(FREQUENCIES) - np.cos(others[:, None] * FREQUENCIES)
    beyond = (1.0 - np.cos(FREQUENCIES))[None]
    margins = np.minimum(shown.cumsum(axis=1).min(axis=0), beyond.cumsum(axis=1)[0])
    return _head(margins, f"the oldest of {window} positions", window * FREQUENCIES)


def look_at_opener(context: int) -> Head:
    """A head whose keys are 0 but for openers. It uses the slowest planes, which turn least on the way."""
    slowest = FREQUENCIES[::-1]
    margins = np.cos(np.arange(context)[:, None] * slowest).cumsum(axis=1).min(axis=0)
    return _head(margins, "the opener", np.zeros(len(slowest)), slice(None, None, -1))


def _head(margins: Floats, what: str, angles: Floats, order: slice = slice(None)) -> Head:
    """The head that looks at `what`, whose query is turned by `angles` [32], with the best number of planes.

    `margins` [32] are differences of scores at amplitude 1 for each number of planes, taken in this `order`.
    The amplitude is a power of two, which is exact in every dtype."""
    sure = margins - ROUNDING * np.arange(1, len(margins) + 1)
    best = int(sure.argmax())
    amplitudes = 2 ** np.arange(int(MOST_AMPLITUDE).bit_length())
    enough = amplitudes[amplitudes * sure[best] >= SEPARATION]
    if not len(enough):
        raise ValueError(
            f"context: an attention head cannot distinguish {what} from the other positions of this context; "
            "choose a shorter one"
        )
    planes = np.arange(len(margins))[order][: best + 1]
    query, key = np.zeros(HEAD_SIZE), np.zeros(HEAD_SIZE)
    scale = enough[0] * np.sqrt(HEAD_SIZE)  # attention divides scores by the root of the head's size
    query[planes] = scale * np.cos(angles[planes])
    query[planes + HEAD_SIZE // 2] = -scale * np.sin(angles[planes])
    key[planes] = 1.0
    return Head(query.astype(ml_dtypes.bfloat16).astype(np.float64), key)


# The weights.


@dataclass(frozen=True)
class Layout:
    hidden: int
    scale: float  # what each norm multiplies by
    constants: slice
    code: slice
    mark: slice
    slots: tuple[slice, ...]
    holders: tuple[slice, ...]
    contexts: slice
    context_holder: slice

    @property
    def one(self) -> int:
        return int(self.constants.start)

    def of_memory(self, law: Law) -> int:
        return sum(offset > 1 for offset in law.offsets)


def attention_heads(law: Law, context: int, near: int = 1, window: int = 0) -> dict[int, Head]:
    """The heads that copy tokens, by the number of their slot, but those up to `near` positions before the
    next one; with a `window` the last one that is read is the oldest in it.

    Raises ValueError for a context that is too short for the distribution, or too long to tell positions
    apart."""
    least = max(1, law.start) + 1
    if context < least:
        raise ValueError(
            f"context: {context} positions do not hold the tokens that the distribution reads and one more; "
            f"give at least {least}"
        )
    far = [offset for offset in law.offsets if offset > 1]
    heads = {
        slot: look_at_oldest(window) if offset == window else look_back(offset - 1, context)
        for slot, offset in enumerate(far)
        if offset > near
    }
    if law.openers:
        heads[len(far) + bool(law.memory)] = look_at_opener(context)
    return heads


def layout_of(law: Law) -> Layout:
    copies = sum(offset > 1 for offset in law.offsets) + bool(law.memory) + bool(law.openers)
    bits, marks = bits_of(law), int(bool(law.openers))
    contexts = int(np.prod(law.logits.table.shape[:-1])) if isinstance(law.logits, TableLogits) else 0
    holds = min(contexts, 1)
    active = 1 + bits + marks + copies * bits + holds  # coordinates that are not 0, with one constant
    hidden, power = _width(active, copies * bits + contexts, copies)
    place = 0

    def next_slice(size: int) -> slice:
        nonlocal place
        place += size
        return slice(place - size, place)

    return Layout(
        hidden=hidden,
        scale=2.0**power,
        constants=next_slice(hidden // 4**power - active + 1),
        code=next_slice(bits),
        mark=next_slice(marks),
        slots=tuple(next_slice(bits) for _ in range(copies)),
        holders=tuple(next_slice(bits) for _ in range(copies)),
        contexts=next_slice(contexts),
        context_holder=next_slice(holds),
    )


def _width(active: int, zeros: int, copies: int) -> tuple[int, int]:
    """The least width E ≥ 64·copies for which E / 4^power coordinates, at least `active`, may be active while
    `zeros` are not, and that power."""
    for hidden in count(UNIT * max(1, copies), UNIT):
        for power in (3, 2, 1, 0):
            if hidden // 4**power >= active and hidden // 4**power + zeros <= hidden:
                return hidden, power
    raise AssertionError("some width is large enough")


def bits_of(law: Law) -> int:
    """Digits of a code, which tells all words and all openers apart."""
    if isinstance(law.logits, AdditiveLogits):
        return law.logits.bits
    return code_bits(max(law.words, len(law.openers)))


def zeros(*shape: int) -> Tensor:
    return np.zeros(shape, dtype=np.float32)


def embedding(law: Law, layout: Layout) -> Tensor:
    numbers = np.arange(law.vocab_size)
    numbers[law.words :] -= law.words + 1  # openers count from 0
    found = zeros(law.vocab_size, layout.hidden)
    for ones in (layout.constants, *layout.holders, layout.context_holder):
        found[:, ones] = 1
    found[:, layout.code] = sign_codes(np.maximum(numbers, 0), bits_of(law))
    found[:, layout.mark] = -1
    found[list(law.openers), layout.mark] = 1
    return found


def attention(law: Law, layout: Layout, heads: dict[int, Head], width: int) -> dict[str, Tensor]:
    """Head by head: look, copy the code of the token looked at into the slot, and clear the holders.

    The matrices have rows for `width` / 64 heads, the last ones without weights."""
    bits, one = bits_of(law), layout.one
    query, key, value = (zeros(width, layout.hidden) for _ in range(3))
    output = zeros(layout.hidden, width)
    for number, (slot, head) in enumerate(heads.items()):
        rows = slice(number * HEAD_SIZE, (number + 1) * HEAD_SIZE)
        query[rows, one] = head.query / layout.scale
        key[rows, one] = head.key / layout.scale
        if law.openers and number == len(heads) - 1:  # 1 for openers, and 0 for all others
            key[rows, one] /= 2
            key[rows, layout.mark] = key[rows, one, None]
        values = np.arange(rows.start, rows.start + bits + 1)
        value[values[:bits], layout.code] = np.eye(bits) / layout.scale
        value[values[bits], one] = 1 / layout.scale
        output[layout.slots[slot], values[:bits]] = np.eye(bits)
        output[layout.holders[slot], values[bits]] = -1
    return {"q": query, "k": key, "v": value, "o": output}


def _reads(law: Law, layout: Layout) -> list[slice]:
    """Where the codes are that the distribution reads, in the order of its contexts without the expert."""
    slots = iter(layout.slots)
    return [layout.code if offset == 1 else next(slots) for offset in law.offsets] + list(slots)


def gates(law: Law, layout: Layout, expert: int | None = None) -> dict[str, Tensor]:
    """An MLP with a gate for each context of a table, or for those of an expert: open if all digits agree,
    closed if one differs."""
    read = np.zeros((0, 0), dtype=np.int64)
    kept = np.zeros(0, dtype=np.int64)
    if isinstance(law.logits, TableLogits):
        sizes = law.logits.table.shape[:-1]
        read = np.indices(sizes).reshape(len(sizes), -1).T if sizes else np.zeros((1, 0), dtype=np.int64)
        kept = np.arange(len(read))
        if law.experts:
            column = len(law.offsets) + bool(law.memory)
            kept = np.flatnonzero(read[:, column] == expert)
            read = np.delete(read[kept], column, axis=1)
    number, bits = len(read), bits_of(law)
    units = max(UNIT, -(-number // UNIT) * UNIT)
    gate, up, down = zeros(units, layout.hidden), zeros(units, layout.hidden), zeros(layout.hidden, units)
    for column, where in enumerate(_reads(law, layout)[: read.shape[1]]):
        codes, here = sign_codes(read[:, column], bits), gate[:number]
        if law.memory and column == len(law.offsets):
            empty = read[:, column] == law.words
            holder = layout.holders[layout.of_memory(law)]
            here[:, holder] = GATE * empty[:, None] / layout.scale
            codes[empty] = 0.0
        here[:, where] = GATE * codes / layout.scale
    gate[:number, layout.one] = GATE * (1 - read.shape[1] * bits) / layout.scale
    up[:number, layout.one] = 1 / GATE / layout.scale
    down[layout.contexts.start + kept, np.arange(number)] = 1
    down[layout.context_holder, :number] = -1
    return {"gate": gate, "up": up, "down": down}


def output(law: Law, layout: Layout) -> Tensor:
    """The head: the logits of each context, or the base and the weights of the codes."""
    found = zeros(law.vocab_size, layout.hidden)
    found[law.words :, layout.one] = NEVER
    if isinstance(law.logits, TableLogits):
        found[: law.words, layout.contexts] = _finite(law.logits.table.reshape(-1, law.words).T)
    elif isinstance(law.logits, AdditiveLogits):
        found[: law.words, layout.one] = _finite(law.logits.base)
        for slot, read in enumerate(_reads(law, layout)):
            found[: law.words, read] = law.logits.weights[:, slot]
    return found / np.float32(layout.scale)


def _finite(logits: Floats) -> Floats:
    return np.where(np.isneginf(logits), NEVER, logits)
