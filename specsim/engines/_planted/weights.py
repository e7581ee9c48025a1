"""The parts of a transformer whose next-token distribution is a given one; `architectures.py` joins them.

The residual stream has these coordinates, each 0, 1 or -1:

- constants, which are 1; the first of them is called *one*,
- the code of the token, ±1 by the digits of its number,
- a mark, 1 for an opener and -1 for other tokens, if the distribution reads the opener,
- for each other token that is read a *slot*, 0 until an attention head or a state copies its code there, and
  as many *holders*, which are 1 until then; so too for the number of an expert, which that expert writes,
- for a distribution given as a table, a unit vector of the context, 0 until the MLP writes it, and a holder
  of it.

So the number of coordinates that are not 0 never changes. There are enough constants to make the mean square
a power of 4: then each norm multiplies by a power of two, without rounding in any dtype.

For a table, each unit of the MLP is an AND gate of one context, and the head's column of that context has its
logits. Otherwise the logits are linear in the codes, and the MLP is empty, but for the number of its expert.
All weights are numbers that bfloat16 and float16 hold."""

import math
from dataclasses import dataclass
from itertools import accumulate, chain, count

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
    """A query and a key, each [64], plane i in i and i + 32. All keys are alike, or 0 but for openers."""

    query: Floats
    key: Floats


def look_back(distance: int, context: int) -> Head:
    """A head that looks `distance` back, on the planes that tell this position most from all others."""
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


class Layout:
    """Where the coordinates of a distribution are, and the matrices that read and write them; each norm
    multiplies by `scale`. `of_memory` has the slot and the holder of what a state remembers."""

    def __init__(self, law: Law):
        self.law = law
        # digits of a code, which tells all words and all openers apart
        additive = law.logits if isinstance(law.logits, AdditiveLogits) else None
        self.bits = bits = additive.bits if additive else code_bits(max(law.words, len(law.openers)))
        far, marks = sum(offset > 1 for offset in law.offsets), int(bool(law.openers))
        of_expert = bool(additive and law.experts)
        copies = far + bool(law.memory) + marks + of_expert
        contexts = int(np.prod(law.logits.table.shape[:-1])) if isinstance(law.logits, TableLogits) else 0
        holds = min(contexts, 1)
        active = 1 + bits + marks + copies * bits + holds  # coordinates that are not 0, with one constant
        self.hidden, power = _width(active, copies * bits + contexts, copies)
        self.scale = 2.0**power
        constants = self.hidden // 4**power - active + 1
        sizes = [constants, bits, marks, *[bits] * 2 * copies, contexts, holds]
        places = (slice(end - size, end) for size, end in zip(sizes, accumulate(sizes), strict=True))
        self.constants, self.code, self.mark, *copied, self.contexts, self.context_holder = places
        self.one = int(self.constants.start)
        self.slots, self.holders = copied[:copies], copied[copies:]
        self.of_memory = [part[far] for part in (self.slots, self.holders) if law.memory]
        self.of_expert = [part[-1] for part in (self.slots, self.holders) if of_expert]

    def heads(self, context: int, near: int = 1, window: int = 0) -> dict[int, Head]:
        """The heads that copy tokens, by the number of their slot, but those up to `near` positions before
        the next one; with a `window` the last one that is read is the oldest in it. ValueError for a context
        that is too short for the distribution, or too long to tell positions apart."""
        law = self.law
        least = max(1, law.start) + 1
        if context < least:
            raise ValueError(
                f"context: {context} positions do not hold the tokens that the distribution reads and one "
                f"more; give at least {least}"
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

    def embedding(self) -> Tensor:
        law = self.law
        numbers = np.arange(law.vocab_size)
        numbers[law.words :] -= law.words + 1  # openers count from 0
        found = zeros(law.vocab_size, self.hidden)
        for ones in (self.constants, *self.holders, self.context_holder):
            found[:, ones] = 1
        found[:, self.code] = sign_codes(np.maximum(numbers, 0), self.bits)
        found[:, self.mark] = -1
        found[list(law.openers), self.mark] = 1
        return found

    def attention(self, heads: dict[int, Head], width: int) -> dict[str, Tensor]:
        """Head by head: look, copy the code of the token looked at into the slot, and clear the holders. The
        matrices have rows for `width` / 64 heads, the last ones without weights."""
        bits, one = self.bits, self.one
        query, key, value = zeros(3, width, self.hidden)
        output = zeros(self.hidden, width)
        for number, (slot, head) in enumerate(heads.items()):
            rows = slice(number * HEAD_SIZE, (number + 1) * HEAD_SIZE)
            query[rows, one] = head.query / self.scale
            key[rows, one] = head.key / self.scale
            if self.law.openers and number == len(heads) - 1:  # 1 for openers, and 0 for all others
                key[rows, one] /= 2
                key[rows, self.mark] = key[rows, one, None]
            values = np.arange(rows.start, rows.start + bits + 1)
            value[values[:bits], self.code] = np.eye(bits) / self.scale
            value[values[bits], one] = 1 / self.scale
            output[self.slots[slot], values[:bits]] = np.eye(bits)
            output[self.holders[slot], values[bits]] = -1
        return {"q": query, "k": key, "v": value, "o": output}

    def joined(self) -> tuple[Tensor, Tensor]:
        """What a head reads of the newest token's embedding, and of the hidden state of the token before it.

        There the code is that of the token before, and the slots are one token behind; the last slots have
        what is the same for the newest token, or what a state remembered before it."""
        token, hidden = np.eye(self.hidden, dtype=np.float32), zeros(self.hidden, self.hidden)
        for part in chain(self.slots, self.holders):
            token[part, part] = 0
        far = sum(offset > 1 for offset in self.law.offsets)
        read = [self.code, *self.slots][:far] + self.slots[far:] + self.of_memory[1:]
        for slot, part in zip([*self.slots, *self.of_memory[1:]], read, strict=True):
            hidden[slot, part] = np.eye(self.bits)
        return token, hidden

    def _reads(self) -> list[slice]:
        """Where the codes are that the distribution reads, in the order of contexts; not a table's expert."""
        slots = iter(self.slots)
        found = [self.code if offset == 1 else next(slots) for offset in self.law.offsets] + list(slots)
        if self.of_expert and self.law.openers:
            found[-2:] = found[:-3:-1]  # the opener comes after the expert
        return found

    def gates(self, expert: int | None = None) -> dict[str, Tensor]:
        """An MLP with a gate for each context of a table or an expert, open if all digits agree; of a
        sum one that writes the number of the expert."""
        law, bits, read, kept = self.law, self.bits, np.zeros((0, 0), np.int64), np.zeros(0, np.int64)
        if isinstance(law.logits, TableLogits):
            sizes = law.logits.table.shape[:-1]
            read = np.indices(sizes).reshape(len(sizes), math.prod(sizes)).T
            kept = np.arange(len(read))
            if law.experts:
                column = len(law.offsets) + bool(law.memory)
                kept = np.flatnonzero(read[:, column] == expert)
                read = np.delete(read[kept], column, axis=1)
        elif self.of_expert:
            read = np.zeros((1, 0), np.int64)  # one gate, which is always open
        number = len(read)
        units = max(UNIT, -(-number // UNIT) * UNIT)
        gate, up = zeros(2, units, self.hidden)
        down = zeros(self.hidden, units)
        for column, where in enumerate(self._reads()[: read.shape[1]]):
            codes, here = sign_codes(read[:, column], bits), gate[:number]
            if law.memory and column == len(law.offsets):
                empty = read[:, column] == law.words
                here[:, self.of_memory[1]] = GATE * empty[:, None] / self.scale
                codes[empty] = 0.0
            here[:, where] = GATE * codes / self.scale
        gate[:number, self.one] = GATE * (1 - read.shape[1] * bits) / self.scale
        up[:number, self.one] = 1 / GATE / self.scale
        down[self.contexts.start + kept, np.arange(number)] = 1
        down[self.context_holder, :number] = -1
        if self.of_expert:
            slot, holder = self.of_expert
            down[slot, 0], down[holder, 0] = sign_codes(np.array(expert), bits), -1
        return {"gate": gate, "up": up, "down": down}

    def output(self) -> Tensor:
        """The head: the logits of each context, or the base and the weights of the codes."""
        law = self.law
        found = zeros(law.vocab_size, self.hidden)
        found[law.words :, self.one] = NEVER
        if isinstance(law.logits, TableLogits):
            found[: law.words, self.contexts] = _finite(law.logits.table.reshape(-1, law.words).T)
        else:
            found[: law.words, self.one] = _finite(law.logits.base)
            for slot, read in enumerate(self._reads()):
                found[: law.words, read] = law.logits.weights[:, slot]
        return found / np.float32(self.scale)


def _width(active: int, zeros: int, copies: int) -> tuple[int, int]:
    """The least width E ≥ 64·copies, and power, with `active` ≤ E / 4^power ≤ E - `zeros`."""
    for hidden in count(UNIT * max(1, copies), UNIT):
        for power in (3, 2, 1, 0):
            if hidden // 4**power >= active and hidden // 4**power + zeros <= hidden:
                return hidden, power
    raise AssertionError("some width is large enough")


def zeros(*shape: int) -> Tensor:
    return np.zeros(shape, dtype=np.float32)


def _finite(logits: Floats) -> Floats:
    return np.where(np.isneginf(logits), NEVER, logits)
