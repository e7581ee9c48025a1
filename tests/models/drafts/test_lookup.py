"""Drafts without a draft model: prompt lookup, and the n-gram pool of lookahead decoding."""

from pathlib import Path

import numpy as np
import pytest
from conftest import rational_pair
from enumerated import looked_up, paths
from test_drafts import is_lossless, law_of_draft

import specsim
from specsim.models import TableModel, chain, chains
from specsim.models._drafts.lookahead_decoding import Lookahead
from specsim.models._drafts.prompt_lookup import lookup_drafts, prompt_lookup

SOURCE = np.frombuffer((Path(specsim.__file__).parent / "core/distributions.py").read_bytes(), dtype=np.uint8)


def test_lookup_is_a_search_from_the_left():
    rng = np.random.default_rng(1)
    for _ in range(2000):
        text = rng.integers(int(rng.integers(1, 5)), size=int(rng.integers(0, 25))).tolist()
        gamma, max_ngram = int(rng.integers(1, 6)), int(rng.integers(1, 6))
        assert prompt_lookup(text, gamma, max_ngram) == looked_up(text, gamma, max_ngram)


def test_lookup_at_many_positions_is_lookup_at_each():
    rng = np.random.default_rng(2)
    for vocab_size in (1, 2, 5):
        text = rng.integers(vocab_size, size=200)
        positions = rng.permutation(201)
        drafts = lookup_drafts(text, positions, 4, 3)
        assert drafts.dtype == np.int64
        for position, draft in zip(positions, drafts, strict=True):
            expected = prompt_lookup(text[:position], 4, 3)
            assert draft.tolist() == [*expected] + [-1] * (4 - len(expected))


def test_lookup_by_hand():
    text = list(b"the cat, the dog, the c")
    assert bytes(prompt_lookup(text, 5)) == b"at, t"  # "e c" stands once before, "c" alone would do as well
    assert bytes(prompt_lookup(list(b"one two one"), 9)) == b" two one"  # no more text than this
    assert bytes(prompt_lookup(list(b"abXabYab"), 1, max_ngram=2)) == b"X"  # the earliest
    assert bytes(prompt_lookup(list(b"aaaa"), 3)) == b"a"  # it may overlap with what is looked for, not be it
    assert prompt_lookup(list(b"abc"), 3) == prompt_lookup([1], 3) == prompt_lookup([], 3) == ()


@pytest.mark.parametrize("history", [(0, 1, 2, 0, 1), (2, 2, 2), (0, 1, 0, 2, 0)])
@pytest.mark.parametrize("name", ["one_hot", "naive_matching", "deterministic_children"])
def test_lookup_is_verified_without_bias(history, name):
    tokens = prompt_lookup(history, 2)
    assert tokens
    for flavour in ("plain", "zeros", "ties"):
        target, _ = rational_pair(np.random.default_rng(4), 3, 2, 0, flavour)
        law = law_of_draft(specsim.rules.get(name), target, chain(len(tokens)), tokens, history)
        assert is_lossless(law, target, chain(len(tokens)), history)


def test_taking_looked_up_tokens_for_samples_is_noticed():
    """Negative control: the standard rule with a q that did not draw them."""
    target, _ = rational_pair(np.random.default_rng(4), 3, 2, 0, "plain")
    history = (0, 1, 2, 0, 1)
    law = law_of_draft(specsim.rules.get("standard"), target, chain(2), prompt_lookup(history, 2), history)
    assert sum(law.values()) == 1
    assert not is_lossless(law, target, chain(2), history)


def test_no_position_has_no_draft():
    assert lookup_drafts([1, 2], [], 3).shape == (0, 3)


def greedy(target, history, length):
    text = list(history)
    while len(text) < length:
        text.append(int(target.rows([text[-8:]])[0].argmax()))
    return text


def greedy_with(lookahead, rule, target, history, length):
    """The text of lookahead decoding, and what each step accepted; p is the target's argmax."""
    text, accepted = list(history), []
    while len(text) < length:
        draft = lookahead.draft(text)
        lookahead.update(text)
        tree, tokens = draft or (chain(1), (0,))
        after = [(*text[-8:], *path) for path in paths(tree, tokens)]
        p = [one_hot(target.rows([row])[0]) for row in after]
        stop, follow = rule.law(tree.parents, tokens, p, p)
        node = stop.index(1)  # greedy: nothing is random
        emitted = [*paths(tree, tokens)[node], follow[node].index(1)]
        text += emitted
        if draft:
            accepted.append(len(emitted) - 1)
    return text[:length], accepted


def one_hot(row):
    best = int(row.argmax())
    return [int(token == best) for token in range(len(row))]


@pytest.mark.parametrize("name", ["naive_matching", "deterministic_children"])
@pytest.mark.parametrize("prompt", [b"def __init__(self, ", b"import os\nimport sys\n\n"])
def test_lookahead_emits_the_greedy_text(name, prompt):
    """Whatever the window, and its random beginning: the same text, in fewer steps."""
    target, _ = specsim.default_pair()
    expected = greedy(target, prompt, 190)
    for seed, (window, ngram, candidates) in enumerate([(5, 3, 3), (1, 2, 1), (8, 5, 4)]):
        lookahead = Lookahead(target, window, ngram, candidates, rng=np.random.default_rng(seed))
        text, accepted = greedy_with(lookahead, specsim.rules.get(name), target, prompt, 190)
        assert text == expected
        assert np.mean(accepted[20:]) > 0.1
        assert max(accepted) == ngram - 1


@pytest.mark.parametrize("name", ["naive_matching", "deterministic_children"])
@pytest.mark.parametrize("flavour", ["plain", "zeros", "ties"])
def test_the_pool_is_verified_without_bias(name, flavour):
    """Sampling, not greedy: the law of a step after a random past, in fractions; tails share their start."""
    rng = np.random.default_rng(5)
    shared = 0
    for _ in range(10):
        target, _ = rational_pair(rng, 3, 3, 0, flavour)
        history = rng.integers(3, size=30).tolist()
        lookahead = Lookahead(target, 6, 3, 4, rng=rng)
        for end in range(3, 30):
            lookahead.update(history[:end])
        draft = lookahead.draft(history)
        if draft is not None:
            tree, tokens = draft
            for node in range(tree.size + 1):
                drafted = [tokens[child - 1] for child in tree.children(node)]
                assert len(set(drafted)) == len(drafted)
                shared += node > 0 and len(drafted) > 1
            law = law_of_draft(specsim.rules.get(name), target, tree, tokens, tuple(history))
            assert is_lossless(law, target, tree, tuple(history))
    assert shared > 0


def cycle(size):
    """0, 1, …, size - 1, 0, …"""
    return TableModel(np.roll(np.eye(size), 1, axis=1))


def test_the_window_runs_ahead_of_the_text():
    """On a cycle a column's guesses are right, but for its first token: N-grams are runs of the cycle."""
    lookahead = Lookahead(cycle(5), window=4, ngram=4, candidates=9, rng=np.random.default_rng(0))
    history = [0]
    for _ in range(2):  # N - 2 steps to fill the window
        lookahead.update(history)
        history.append((history[-1] + 1) % 5)
        assert all(lookahead.draft([token]) is None for token in range(5))
    lookahead.update(history)
    found = [lookahead.draft([token]) for token in range(5)]
    tails = [draft for draft in found if draft is not None]
    assert 0 < len(tails) <= 4
    for tree, tokens in tails:
        assert (tree, tokens) == (chain(3, "top"), tuple((tokens[0] + i) % 5 for i in range(3)))


def ngrams_of_the_window(target, histories, window, ngram, rng):
    """The lookahead branch once more, column by column in lists: the n-grams of each step, in order."""
    columns = [[int(token)] for token in rng.choice(histories[0], size=window + ngram - 2)]
    for history in histories:
        columns[0][0] = history[-1]
        first_level = [column[0] for column in columns]
        for i, column in enumerate(columns):
            guess = target.row([*history[:-1], *first_level[: i + 1], *column[1:]]).argmax()
            column.append(int(guess))
        if len(columns[0]) < ngram:
            columns = columns[1:]
        else:
            yield [tuple(column) for column in columns]
            columns = [column[1:] for column in columns]


@pytest.mark.parametrize(("window", "ngram"), [(1, 2), (4, 2), (1, 4), (5, 3), (3, 5)])
def test_the_pool_holds_the_ngrams_of_the_window(window, ngram):
    target, _ = specsim.default_pair()
    histories = [SOURCE[500:end].tolist() for end in range(510, 570, 2)]  # steps of two tokens
    steps = list(ngrams_of_the_window(target, histories, window, ngram, np.random.default_rng(9)))
    assert len(steps) == len(histories) - (ngram - 2)
    assert all(len(grams) == window for grams in steps)
    lookahead = Lookahead(target, window, ngram, 10**6, rng=np.random.default_rng(9))
    for history in histories:
        lookahead.update(history)
    expected = {}  # the latest last
    for gram in (gram for grams in steps for gram in grams):
        expected[gram] = expected.pop(gram, None)
    for first in range(256):
        tails = [gram[1:] for gram in reversed(expected) if gram[0] == first]
        draft = lookahead.draft([first])
        if draft is None:
            assert tails == []
        else:
            leaves = [node for node in range(1, draft[0].size + 1) if not draft[0].children(node)]
            found = [paths(*draft)[leaf] for leaf in leaves]
            assert sorted(found) == sorted(tails)
            assert found[0] == tails[0]


def test_the_pool_keeps_the_latest_and_the_same_seed_drafts_the_same():
    lookahead = Lookahead(cycle(5), window=1, ngram=3, candidates=2, rng=np.random.default_rng(0))
    for tail in [(1, 2), (2, 3), (1, 2), (3, 4)]:  # (2, 3) was seen least recently
        lookahead._remember(0, tail)
    assert lookahead.draft([4, 0]) == (chains(2, 2, "top"), (3, 1, 4, 2))
    assert lookahead.draft([4]) is None
    target, _ = specsim.default_pair()
    drafts = []
    for seed in (1, 1, 2):
        lookahead = Lookahead(target, 4, 3, 4, rng=np.random.default_rng(seed))
        text = greedy(target, b"self.", 60)
        for end in range(5, 60):
            lookahead.update(text[:end])
        drafts.append([lookahead.draft([token]) for token in range(256)])
    assert drafts[0] == drafts[1] != drafts[2]
