"""Steps of a rule's fixed-pair kernel from given uniforms; rules in integers take them as words."""

from itertools import takewhile

import numpy as np

from specsim.core._streams import Purpose, word
from specsim.rules._common.integers import draw_steps

__all__ = ["FIRST", "KEY", "awkward_words", "emitted", "fill_steps", "numbers_of", "words_of"]

#: What draws the rests of words that are given.
KEY, FIRST = (1, 2), 2**32 - 3


def numbers_of(words, step):
    """The numbers of a step with these words."""
    rests = [word(KEY, Purpose.REST, step, index) for index in range(len(words))]
    return [int(one) << 30 | rest >> 2 for one, rest in zip(words, rests, strict=True)]


def emitted(out):
    """The tokens that a step emits, from a column of `out`: accepted ones, then the last one."""
    *path, last = out.tolist()
    return [*takewhile(lambda x: x >= 0, path), last]


def awkward_words(rng, tables, gamma, steps):
    """Words, in whole slots, with the ends of their range among them, and such as leave a decision open."""
    entries, last, _, chances, _ = tables
    words = rng.integers(0, 2**32, (4 * (gamma // 2 + 1), steps))
    ends = rng.choice([0, 0, 1, 2**31, 2**32 - 1], size=words.shape)
    words = np.where(rng.random(words.shape) < 0.4, ends, words)
    mask, equal = entries.shape[1] - 1, rng.random(words.shape) < 0.2
    for i in range(2 * gamma + 1):
        table = last[rng.integers(2)] if i == 0 else entries[min(i // 2, len(entries) - 1)]
        found = table[words[i] & mask].astype(np.int64) & 0xFFFFFFFF & ~mask | words[i] & mask
        if i and i % 2 == 0:
            first = np.minimum(rng.choice(chances[min(i // 2 - 1, len(chances) - 1)], steps) >> 46, 0xFFFF)
            found = first << 16 | words[i] & 0xFFFF
        words[i] = np.where(equal[i], found, words[i])
    return words.astype(np.uint32)


def fill_steps(rule, tables, draft_uniforms, verify_uniforms, tokens, accepted):
    """Fill tokens[depth+1, S], padded with -1, and accepted[S]."""
    if rule.fixed_pair.count is None:
        rule.fixed_pair.kernel(*tables, draft_uniforms, verify_uniforms, tokens, accepted)
        return
    draw_steps(tables, KEY, FIRST, tokens, words_of(tables, draft_uniforms, verify_uniforms))
    for s in range(accepted.size):
        step = emitted(tokens[:, s])
        accepted[s] = len(step) - 1
        tokens[:, s] = step + [-1] * (len(tokens) - len(step))


def words_of(tables, draft_uniforms, verify_uniforms):
    """Words whose columns and coins, or tests, are these uniforms: in whole slots, the last token's first."""
    gamma, steps = draft_uniforms.shape
    words = np.zeros((4 * (gamma // 2 + 1), steps), dtype=np.uint32)
    columns = tables[0].shape[1]
    words[0] = drawing(verify_uniforms[gamma], columns)
    words[1 : 2 * gamma : 2] = drawing(draft_uniforms, columns)
    words[2 : 2 * gamma + 1 : 2] = verify_uniforms[:gamma] * 2.0**32
    return words


def drawing(u, columns):
    """The word of a draw: its last bits are the column, and the others, before them, the coin."""
    column, coin = np.divmod(np.floor(u * 2.0**32).astype(np.int64), 2**32 // columns)
    return coin * columns + column
