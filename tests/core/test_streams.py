"""Streams: Philox against the published vectors and another implementation, and what a stream promises."""

import itertools

import numpy as np
import pytest
from conftest import FALSE_ALARM
from hypothesis import given
from hypothesis import strategies as st
from randomgen import Philox
from scipy import stats

from specsim.core._streams import Purpose, key_of, philox, root_of, uniform, uniforms

WORD = 2**32 - 1

#: The file kat_vectors of Random123 1.09, its three lines "philox4x32 10".
KNOWN_ANSWERS = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((WORD,) * 4, (WORD,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0), (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
]  # fmt: skip

words = st.integers(0, WORD)
keys = st.tuples(words, words)
steps = st.one_of(st.integers(0, 2**40), st.integers(2**32 - 20, 2**32 + 20), st.integers(0, 2**62))


def other_philox(counter, key, blocks):
    """`blocks` outputs of randomgen's Philox from `counter` on; it counts up before each."""
    first = (as_integer(counter) - 1) % 2**128
    generator = Philox(counter=first, key=as_integer(key), number=4, width=32)
    return generator.random_raw(4 * blocks).reshape(blocks, 4)


def as_integer(little_endian_words):
    return sum(word << (32 * i) for i, word in enumerate(little_endian_words))


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN_ANSWERS)
def test_philox_gives_the_published_vectors(counter, key, answer):
    assert philox(counter, key) == answer


@given(st.tuples(words, words, words, words), keys)
def test_philox_agrees_with_randomgen_word_for_word(counter, key):
    assert philox(counter, key) == tuple(other_philox(counter, key, 1)[0].tolist())


@given(keys, st.sampled_from(Purpose), steps)
def test_a_step_is_the_words_of_consecutive_counters(key, purpose, step):
    """Three uniforms a counter: each of three words, followed by ten bits of the fourth."""
    expected = []
    for *leading, last in other_philox((0, step & WORD, step >> 32, purpose), key, 3).tolist():
        tens = last % 2**10, last // 2**10 % 2**10, last // 2**20 % 2**10
        expected += [(word * 2**10 + ten) / 2**42 for word, ten in zip(leading, tens, strict=True)]
    assert uniforms(key, purpose, step, 1, 9)[:, 0].tolist() == expected


@given(keys, st.sampled_from(Purpose), steps, st.integers(1, 9), st.integers(1, 7))
def test_compiled_uniforms_are_the_plain_ones_bit_for_bit(key, purpose, first_step, length, count):
    expected = [
        [uniform(key, purpose, first_step + s, index) for s in range(length)] for index in range(count)
    ]
    assert uniforms(key, purpose, first_step, length, count).tolist() == expected


@pytest.mark.parametrize("first_step", [2**32 - 1, 2**32 - 7, 2**32, 5 * 2**32 - 8])
def test_the_step_carries_into_its_high_word(first_step):
    out = uniforms((1, 2), Purpose.VERIFY, first_step, 40, 3)
    assert out.shape == (3, 40)
    assert out.tolist() == [
        [uniform((1, 2), Purpose.VERIFY, first_step + s, i) for s in range(40)] for i in range(3)
    ]


def test_uniforms_do_not_depend_on_how_the_steps_are_cut():
    whole = uniforms((3, 4), Purpose.DRAFT, 1000, 300, 5)
    cuts = [0, 1, 2, 64, 65, 193, 300]
    pieces = [uniforms((3, 4), Purpose.DRAFT, 1000 + a, b - a, 5) for a, b in itertools.pairwise(cuts)]
    assert np.array_equal(np.hstack(pieces), whole)


def test_streams_of_different_keys_purposes_and_steps_share_no_number():
    cells = [key_of(root, cell) for root in (0, 1, 2**70) for cell in ((), (0,), (1,), (0, 0), (0, 1))]
    drawn = np.concatenate([uniforms(key, purpose, 0, 50, 8).ravel() for key in cells for purpose in Purpose])
    assert len(set(cells)) == 15
    assert np.unique(drawn).size == drawn.size == 15 * len(Purpose) * 400
    assert drawn.min() >= 0
    assert drawn.max() < 1


def test_golden_uniforms():
    assert key_of(7) == (0x7C326E58, 0xEAD0F701)
    assert key_of(7, (1, 2)) == (0x79223093, 0x92668AAC)
    assert uniforms(key_of(7), Purpose.DRAFT, 0, 2, 3).tolist() == [
        [0.9182065765355674, 0.9396930486550445],
        [0.9524664184773428, 0.3380284041561481],
        [0.8596790136584787, 0.1472668733831597],
    ]


def uniformity(cells, count):
    return stats.chisquare(np.bincount(cells, minlength=count)).pvalue


def pairs(x, y):
    return (x * 16).astype(int) * 16 + (y * 16).astype(int)


@pytest.fixture(scope="module")
def million():
    """Uniforms [6, 2^18]: two slots of as many steps."""
    return uniforms(key_of(20), Purpose.VERIFY, 0, 2**18, 6)


def test_uniforms_are_uniform_in_their_high_and_low_bits(million):
    u = million.ravel()
    assert uniformity((u * 256).astype(int), 256) > FALSE_ALARM
    assert uniformity((u**1.02 * 256).astype(int), 256) < FALSE_ALARM  # bent by a hundredth

    def low_bits(u):
        return (u * 2**42).astype(np.int64) % 256

    u = million.ravel()
    assert uniformity(low_bits(u), 256) > FALSE_ALARM
    assert uniformity(low_bits(np.floor(u * 2**39) / 2**39), 256) < FALSE_ALARM  # three bits short


def test_uniforms_are_independent_within_a_slot_between_slots_and_between_steps(million):
    neighbours = {
        "within a slot": (million[0], million[1]),
        "in the bits of the shared word": (million[1] * 2**32 % 1, million[2] * 2**32 % 1),
        "between slots": (million[2], million[3]),
        "between steps": (million[0, :-1], million[0, 1:]),
    }
    for x, y in neighbours.values():
        assert uniformity(pairs(x, y), 256) > FALSE_ALARM
    x, y = neighbours["within a slot"]
    reused = np.where(np.arange(x.size) % 100 == 0, x, y)  # one number in a hundred is used twice
    assert uniformity(pairs(x, reused), 256) < FALSE_ALARM


@pytest.mark.parametrize("seed", [0, 7, 2**200, np.int32(5), np.uint64(2**64 - 1)])
def test_an_integer_is_its_own_root(seed):
    assert root_of(seed) == int(seed)
    assert type(root_of(seed)) is int


def test_roots_of_sequences_generators_and_nothing():
    sequence = np.random.SeedSequence(5)
    child = sequence.spawn(1)[0]
    assert root_of(sequence) == root_of(sequence) == root_of(np.random.SeedSequence(5))
    assert 2**40 < root_of(sequence) < 2**53
    assert root_of(child) != root_of(sequence)
    generator = np.random.default_rng(5)
    first, second = root_of(generator), root_of(generator)
    assert first == int(np.random.default_rng(5).integers(2**53))
    assert first != second
    assert root_of(None) != root_of(None)
