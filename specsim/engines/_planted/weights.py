"""The weights of a one-layer Llama whose next-token distribution is a given one.

The residual stream has these coordinates, each 0, 1 or -1:

- constants, which are 1; the first of them is called *one*,
- the code of the token, ±1 by the digits of its number,
- a mark, 1 for an opener and -1 for other tokens, if the distribution reads the opener,
- for each head a *slot*, 0 until the head copies the code of another token there, and as many *holders*,
  which are 1 until then,
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
    planes, amplitude = _best(margins, f"the token {distance} back")
    return _head(np.arange(planes), amplitude, distance * FREQUENCIES[:planes])


def look_at_opener(context: int) -> Head:
    """A head whose keys are 0 but for openers. It uses the slowest planes, which turn least on the way."""
    slowest = FREQUENCIES[::-1]
    margins = np.cos(np.arange(context)[:, None] * slowest).cumsum(axis=1).min(axis=0)
    planes, amplitude = _best(margins, "the opener")
    return _head(len(slowest) - 1 - np.arange(planes), amplitude, np.zeros(planes))


def _best(margins: Floats, what: str) -> tuple[int, int]:
    """How many planes to use, and the amplitude: a power of two, which is exact in every dtype.

    `margins` [32] are differences of scores at amplitude 1 for each number of planes."""
    sure = margins - ROUNDING * np.arange(1, len(margins) + 1)
    best = int(sure.argmax())
    for amplitude in 2 ** np.arange(int(MOST_AMPLITUDE).bit_length()):
        if amplitude * sure[best] >= SEPARATION:
            return best + 1, int(amplitude)
    raise ValueError(
        f"context: an attention head cannot distinguish {what} from the other positions of this context; "
        "choose a shorter one"
    )


def _head(planes: NDArray[np.int64], amplitude: int, angles: Floats) -> Head:
    query, key = np.zeros(HEAD_SIZE), np.zeros(HEAD_SIZE)
    scale = amplitude * np.sqrt(HEAD_SIZE)  # attention divides scores by the root of the head's size
    query[planes] = scale * np.cos(angles)
    query[planes + HEAD_SIZE // 2] = -scale * np.sin(angles)
    key[planes] = 1.0
    return Head(query.astype(ml_dtypes.bfloat16).astype(np.float64), key)


# The weights.


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """Sizes and tensors; the names are those of `LlamaForCausalLM` in transformers."""

    vocab_size: int
    context: int
    hidden: int
    intermediate: int
    heads: int
    tensors: dict[str, Tensor]


@dataclass(frozen=True)
class Layout:
    """Where the coordinates of the residual stream are."""

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


def build(law: Law, context: int) -> Checkpoint:
    """The weights for a distribution, in texts of up to `context` positions.

    Raises ValueError for a context too short for the distribution, or too long to tell positions apart."""
    least = max(1, law.start) + 1
    if context < least:
        raise ValueError(
            f"context: {context} positions do not hold the tokens that the distribution reads and one more; "
            f"give at least {least}"
        )
    heads = [look_back(offset - 1, context) for offset in law.offsets if offset > 1]
    heads += [look_at_opener(context)] * bool(law.openers)
    layout = _layout(law, len(heads))
    tensors = {
        "model.embed_tokens.weight": _embedding(law, layout),
        **_attention(law, layout, heads),
        **_mlp(law, layout),
        "lm_head.weight": _output(law, layout),
    }
    for norm in ("layers.0.input_layernorm", "layers.0.post_attention_layernorm", "norm"):
        tensors[f"model.{norm}.weight"] = np.ones(layout.hidden, dtype=np.float32)
    n_heads = layout.hidden // HEAD_SIZE  # those that make up the width, the last ones without weights
    return Checkpoint(law.vocab_size, context, layout.hidden, _units(layout), n_heads, tensors)


def _layout(law: Law, heads: int) -> Layout:
    bits, marks = _bits(law), int(bool(law.openers))
    contexts = int(np.prod(law.logits.table.shape[:-1])) if isinstance(law.logits, TableLogits) else 0
    holds = min(contexts, 1)
    active = 1 + bits + marks + heads * bits + holds  # coordinates that are not 0, with one constant
    hidden, power = _width(active, heads * bits + contexts, heads)
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
        slots=tuple(next_slice(bits) for _ in range(heads)),
        holders=tuple(next_slice(bits) for _ in range(heads)),
        contexts=next_slice(contexts),
        context_holder=next_slice(holds),
    )


def _width(active: int, zeros: int, heads: int) -> tuple[int, int]:
    """The least width E ≥ 64·heads for which E / 4^power coordinates, at least `active`, may be active while
    `zeros` are not, and that power."""
    for hidden in count(UNIT * max(1, heads), UNIT):
        for power in (3, 2, 1, 0):
            if hidden // 4**power >= active and hidden // 4**power + zeros <= hidden:
                return hidden, power
    raise AssertionError("some width is large enough")


def _bits(law: Law) -> int:
    """Digits of a code, which tells all words and all openers apart."""
    if isinstance(law.logits, AdditiveLogits):
        return law.logits.bits
    return code_bits(max(law.words, len(law.openers)))


def _units(layout: Layout) -> int:
    """Units of the MLP: one for each context, and closed ones up to a multiple of 64."""
    contexts = layout.contexts.stop - layout.contexts.start
    return max(UNIT, -(-contexts // UNIT) * UNIT)


def _zeros(*shape: int) -> Tensor:
    return np.zeros(shape, dtype=np.float32)


def _embedding(law: Law, layout: Layout) -> Tensor:
    numbers = np.arange(law.vocab_size)
    numbers[law.words :] -= law.words + 1  # openers count from 0
    embedding = _zeros(law.vocab_size, layout.hidden)
    for ones in (layout.constants, *layout.holders, layout.context_holder):
        embedding[:, ones] = 1
    embedding[:, layout.code] = sign_codes(np.maximum(numbers, 0), _bits(law))
    embedding[:, layout.mark] = -1
    embedding[list(law.openers), layout.mark] = 1
    return embedding


def _attention(law: Law, layout: Layout, heads: list[Head]) -> dict[str, Tensor]:
    """Head by head: look, copy the code of the token looked at into the slot, and clear the holders."""
    bits, width, one = _bits(law), layout.hidden, layout.one
    query, key, value, output = (_zeros(width, width) for _ in range(4))
    for number, head in enumerate(heads):
        rows = slice(number * HEAD_SIZE, (number + 1) * HEAD_SIZE)
        query[rows, one] = head.query / layout.scale
        key[rows, one] = head.key / layout.scale
        if law.openers and number == len(heads) - 1:  # 1 for openers, and 0 for all others
            key[rows, one] /= 2
            key[rows, layout.mark] = key[rows, one, None]
        values = np.arange(rows.start, rows.start + bits + 1)
        value[values[:bits], layout.code] = np.eye(bits) / layout.scale
        value[values[bits], one] = 1 / layout.scale
        output[layout.slots[number], values[:bits]] = np.eye(bits)
        output[layout.holders[number], values[bits]] = -1
    names = {"q": query, "k": key, "v": value, "o": output}
    return {f"model.layers.0.self_attn.{name}_proj.weight": matrix for name, matrix in names.items()}


def _reads(law: Law, layout: Layout) -> list[slice]:
    """Where the codes are that the distribution reads, in the order of its contexts."""
    slots = iter(layout.slots)
    return [layout.code if offset == 1 else next(slots) for offset in law.offsets] + list(slots)


def _mlp(law: Law, layout: Layout) -> dict[str, Tensor]:
    """A gate for each context of a table: open if all digits agree, closed if one differs."""
    units = _units(layout)
    gate, up, down = _zeros(units, layout.hidden), _zeros(units, layout.hidden), _zeros(layout.hidden, units)
    if isinstance(law.logits, TableLogits):
        sizes = law.logits.table.shape[:-1]
        contexts = np.indices(sizes).reshape(len(sizes), -1).T if sizes else np.zeros((1, 0), dtype=np.int64)
        number = len(contexts)
        codes = sign_codes(contexts, _bits(law))
        for slot, read in enumerate(_reads(law, layout)):
            gate[:number, read] = GATE * codes[:, slot] / layout.scale
        gate[:number, layout.one] = GATE * (1 - codes[0].size) / layout.scale
        up[:number, layout.one] = 1 / GATE / layout.scale
        down[layout.contexts, :number] = np.eye(number)
        down[layout.context_holder, :number] = -1
    names = {"gate": gate, "up": up, "down": down}
    return {f"model.layers.0.mlp.{name}_proj.weight": matrix for name, matrix in names.items()}


def _output(law: Law, layout: Layout) -> Tensor:
    """The head: the logits of each context, or the base and the weights of the codes."""
    output = _zeros(law.vocab_size, layout.hidden)
    output[law.words :, layout.one] = NEVER
    if isinstance(law.logits, TableLogits):
        output[: law.words, layout.contexts] = _finite(law.logits.table.reshape(-1, law.words).T)
    elif isinstance(law.logits, AdditiveLogits):
        output[: law.words, layout.one] = _finite(law.logits.base)
        for slot, read in enumerate(_reads(law, layout)):
            output[: law.words, read] = law.logits.weights[:, slot]
    return output / np.float32(layout.scale)


def _finite(logits: Floats) -> Floats:
    return np.where(np.isneginf(logits), NEVER, logits)
