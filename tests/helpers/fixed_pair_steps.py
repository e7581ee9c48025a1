"""Steps of a rule's fixed-pair kernel from given uniforms; rules in integers take them as words."""

from itertools import takewhile

import numpy as np

from specsim.core._streams import Purpose, word
from specsim.rules._common.integers import draw_steps, word_count

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
    entries, last, _, cuts, _ = tables
    words = rng.integers(0, 2**32, (word_count(gamma), steps))
    ends = rng.choice([0, 0, 1, 2**31, 2**32 - 1], size=words.shape)
    words = np.where(rng.random(words.shape) < 0.4, ends, words)
    mask, equal = entries.shape[1] - 1, rng.random(words.shape) < 0.2
    for i in range(gamma + 1):
        columns, row = words[i] & mask, min(max(i - 1, 0), len(entries) - 1)
        table = last[rng.integers(2)] if i == 0 else entries[row]
        ends = table[columns].astype(np.int64) & 0xFFFFFFFF
        if i:
            way = rng.integers(3, size=steps)  # the threshold, or a cut
            ends = np.where(way < 2, np.minimum(cuts[row, way % 2, columns] >> 30, 2**32 - 1), ends)
        words[i] = np.where(equal[i], ends & ~mask | columns, words[i])
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
    """Words that draw what these uniforms draw, and whose places among those that draw a token are the uniforms
    of its test: in whole slots, the last token's first."""
    gamma, steps = draft_uniforms.shape
    entries, words = tables[0], np.zeros((word_count(gamma), steps), dtype=np.uint32)
    size = entries.shape[1]
    words[0] = drawing(verify_uniforms[gamma], size)
    for i in range(gamma):
        coin, column = np.divmod(drawing(draft_uniforms[i], size), size)
        own = (entries[min(i, len(entries) - 1), column].astype(np.int64) & 0xFFFFFFFF) // size
        first, end = np.where(coin < own, 0, own), np.where(coin < own, own, 2**32 // size)
        words[i + 1] = (first + np.floor(verify_uniforms[i] * (end - first)).astype(np.int64)) * size + column
    return words


def drawing(u, columns):
    """The word of a draw: its last bits are the column, and the others, before them, the coin."""
    column, coin = np.divmod(np.floor(u * 2.0**32).astype(np.int64), 2**32 // columns)
    return coin * columns + column
