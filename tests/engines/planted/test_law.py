"""Laws: what is read where, rows against logits written out, models, bad input."""

import numpy as np
import pytest

from specsim.engines._planted.law import MEMORIES, AdditiveLogits, Law, Memory, TableLogits, sign_codes

WORDS = 3


def table_law(offsets, openers=0, seed=0):
    """A law of 3 words, end-of-text with id 3, and openers from id 4 on, with one word that never comes."""
    rng = np.random.default_rng(seed)
    sizes = (WORDS,) * len(offsets) + (openers,) * bool(openers)
    table = rng.integers(-64, 1, size=(*sizes, WORDS)) / 16
    table[(0,) * len(sizes)][1] = -np.inf
    ids = tuple(range(WORDS + 1, WORDS + 1 + openers))
    return Law(WORDS + 1 + openers, offsets, ids, TableLogits(table))


def additive_law(offsets, words=5, bits=3, seed=0):
    rng = np.random.default_rng(seed)
    base, weights = (rng.integers(-16, 17, size=size) / 16 for size in (words, (words, len(offsets), bits)))
    return Law(words + 1, offsets, (), AdditiveLogits(base, weights))


def softmax(logits):
    weights = [np.exp(value) for value in logits]
    return [weight / sum(weights) for weight in weights]


@pytest.mark.parametrize("offsets", [(), (1,), (1, 2), (2, 5)])
@pytest.mark.parametrize("openers", [0, 2])
def test_each_row_is_that_of_the_tokens_at_the_offsets(offsets, openers):
    law = table_law(offsets, openers)
    text = np.random.default_rng(1).integers(WORDS, size=12)
    if openers:
        text[0] = law.openers[1]
    contexts = law.contexts(text, law.start)
    rows, log_rows = law.rows(contexts), law.log_rows(contexts)
    assert law.start == max(offsets, default=0) + (openers > 0)
    assert len(rows) == len(text) - law.start
    for place, row in enumerate(rows, law.start):
        read = [int(text[place - offset]) for offset in offsets] + [1] * (openers > 0)
        np.testing.assert_allclose(row[:WORDS], softmax(law.logits.table[tuple(read)]), rtol=1e-14)
        assert (row[WORDS:] == 0).all()
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(log_rows, np.log(rows), rtol=1e-13)
    np.testing.assert_allclose(rows.sum(axis=1), 1, rtol=1e-14)


def test_additive_logits_add_up_codes():
    law = additive_law((1, 3))
    text = np.random.default_rng(1).integers(5, size=9)
    for place, row in enumerate(law.rows(law.contexts(text, 3)), 3):
        logits = law.logits.base.copy()
        for slot, offset in enumerate(law.offsets):
            for bit in range(3):
                sign = 1 if text[place - offset] >> bit & 1 else -1
                logits += sign * law.logits.weights[:, slot, bit]
        np.testing.assert_allclose(row[:5], softmax(logits), rtol=1e-14)


def test_codes_differ():
    codes = sign_codes(np.arange(8), 3)
    assert set(np.unique(codes)) == {-1.0, 1.0}
    assert len({tuple(code) for code in codes}) == 8


@pytest.mark.parametrize("kind", MEMORIES)
@pytest.mark.parametrize("words", [5, 100])
def test_a_memory_is_of_the_whole_text(kind, words):
    """What is read is what a loop over the text finds, however long ago it was."""
    memory = Memory(kind, words)
    law = Law(words + 3, (1,), (words + 1, words + 2), TableLogits(np.zeros((1, 1, 2, words))), memory)
    texts = np.random.default_rng(1).integers(words, size=(3, 300))
    texts[:, 0] = law.openers[1]
    contexts = law.contexts(texts[0], law.start)
    for place in range(law.start, 300):
        found = words
        for i in range(1, place):
            if kind == "latch" and texts[0, i] % 2 == 0:
                found = texts[0, i]
            if kind == "recall" and i > 1 and (texts[0, i - 1] - texts[0, place - 1]) % min(words, 64) == 0:
                found = texts[0, i]
        assert contexts[place - law.start].tolist() == [texts[0, place - 1], found, law.openers[1]]
        assert (law.contexts_at(texts, place)[0] == contexts[place - law.start]).all()
