"""Random numbers of `specsim.core._streams`, and a step of a rule on a fixed pair, as device functions.

A step is `step(tables, k0, k1, number, tokens)`: it fills tokens[γ+1] as far as these are emitted, and gives
the number of accepted ones. It computes what the rule's fixed-pair kernel does for each of its steps, with
the same roundings."""

from collections.abc import Callable
from typing import Any

import numpy as np

from specsim.core._cuda import cuda, device_function
from specsim.core._streams import Purpose, philox_words
from specsim.rules._chain import block
from specsim.rules._common import fixed_pairs, integers

CONTEXT, DRAFT, VERIFY = map(int, (Purpose.CONTEXT, Purpose.DRAFT, Purpose.VERIFY))
STEP, REST = map(int, (Purpose.STEP, Purpose.REST))
philox = device_function(philox_words)
take_step, alias_draw = device_function(integers.take_step), device_function(fixed_pairs.alias_draw)
residual_mass, draw_residual = map(device_function, (fixed_pairs.residual_mass, fixed_pairs.draw_residual))


@cuda.jit(device=True)
def slot_words(k0, k1, purpose, step, slot):
    """The four words of a slot of a step."""
    low, high = np.uint64(step & 0xFFFFFFFF), np.uint64(step >> 32)
    w, x, y, z = philox(np.uint64(slot), low, high, np.uint64(purpose), (np.uint64(k0), np.uint64(k1)))
    return np.uint32(w), np.uint32(x), np.uint32(y), np.uint32(z)


@cuda.jit(device=True)
def fill_words(k0, k1, purpose, step, out):
    """Fill `out`, whole slots, with the first words of a step."""
    for slot in range(out.size // 4):
        words = slot_words(k0, k1, purpose, step, slot)
        for part in range(4):
            out[4 * slot + part] = words[part]


@cuda.jit(device=True)
def fill_uniforms(k0, k1, purpose, step, out):
    """Fill `out`, whole slots, with the first uniforms of a step: all of it is exact."""
    for slot in range(out.size // 3):
        words = slot_words(k0, k1, purpose, step, slot)
        for part in range(3):
            bits = np.int64(words[part]) << 10 | np.int64(words[3]) >> 10 * part & 1023
            out[3 * slot + part] = np.float64(bits) * 2.0**-42


def integer_step(gamma: int) -> Any:
    """Make `integers.take_step`, with what follows the entries of its tables."""
    count = integers.word_count(gamma)

    @cuda.jit(device=True)
    def step(tables, k0, k1, number, tokens):
        words, rests = cuda.local.array(count, np.uint32), cuda.local.array(count, np.uint32)
        fill_words(k0, k1, STEP, number, words)
        fill_words(k0, k1, REST, number, rests)
        if len(tables) == 3:
            return take_step(*tables, 0, words, rests, tokens)
        uniform = cuda.local.array(3, np.float64)
        fill_uniforms(k0, k1, CONTEXT, number, uniform)
        context = tables[3][np.int64(uniform[0] * tables[3].size)]
        return take_step(*tables[:3], context, words, rests, tokens)

    return step


def block_step(gamma: int) -> Any:
    """Make the step of `block.verify_fixed_pair`, with the tables of `block_tables`."""
    drafted, verified = gamma + 2, gamma + 3  # room for whole slots

    @cuda.jit(device=True)
    def step(tables, k0, k1, number, tokens):
        draft_uniforms = cuda.local.array(drafted, np.float64)
        verify_uniforms = cuda.local.array(verified, np.float64)
        fill_uniforms(k0, k1, DRAFT, number, draft_uniforms)
        fill_uniforms(k0, k1, VERIFY, number, verify_uniforms)
        pair, (draft, ratio, most) = fixed_pairs.PairTables(*tables[:-3]), tables[-3:]
        b, scales = 1.0, draft_uniforms  # b_i takes the place of the uniform that drew x_i
        for i in range(gamma):
            x = alias_draw(draft, draft_uniforms[i])
            tokens[i] = x
            b = min(1.0, b * ratio[x]) if b > 0.0 else 0.0
            scales[i] = b
        if verify_uniforms[gamma - 1] < b:
            tokens[gamma] = alias_draw(pair.p_alias, verify_uniforms[gamma])
            return gamma
        n, b = gamma - 1, 1.0
        while n > 0:
            b = scales[n - 1]
            if b == 1.0:
                break
            eta = verify_uniforms[n - 1]
            if eta * (1.0 - b) < b * most[0]:
                mass = residual_mass(pair, b, 1.0)
                if eta * (mass + 1.0 - b) < mass:
                    break
            n -= 1
        tokens[n] = draw_residual(pair, b if n > 0 else 1.0, 1.0, verify_uniforms[gamma])
        return n

    return step


def block_tables(tables: tuple[Any, ...]) -> tuple[Any, ...]:
    """The tables of `block.verify_fixed_pair`, and Σ (p - q)₊."""
    pair, *others = tables
    return *pair, *others, np.array([fixed_pairs.residual_mass(pair, 1.0, 1.0)])


#: By the fixed-pair kernel: what makes the step, and a function that gives its tables from the kernel's.
STEPS: dict[Callable[..., Any], tuple[Any, Callable[[tuple[Any, ...]], tuple[Any, ...]]]] = {
    integers.draw_steps: (integer_step, lambda tables: tables[2:]),
    block.verify_fixed_pair: (block_step, block_tables),
}
