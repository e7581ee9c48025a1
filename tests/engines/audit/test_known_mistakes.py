"""Rows where tokens of the context are not those of the text."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from specsim import plant
from specsim.engines import Sampling
from specsim.engines._audit import known_mistakes
from specsim.engines._audit.known_mistakes import _averaged
from specsim.engines._audit.places import Answered, Given
from specsim.engines._planted.processing import FIRST_ORDER


@pytest.mark.parametrize("at_once", [8, 2**20])
def test_rows_are_averaged_over_the_words_in_the_place_of_a_token(at_once, tmp_path, monkeypatch):
    monkeypatch.setattr(known_mistakes, "ENTRIES", at_once)
    law = (pair := plant(tmp_path / "pair", offsets=(1, 2, 5), openers=2, vocab_size=3, rng=1)).target
    contexts = np.random.default_rng(1).integers(3, size=(40, 4))
    contexts[:, 3] = np.array(law.openers)[contexts[:, 3] % 2]
    given = Given(pair, Sampling(temperature=0.7), FIRST_ORDER, contexts)
    for size in (1, 2, 3):
        for wrong in combinations(range(3), size):
            expected = np.zeros((len(contexts), law.vocab_size))
            for words in np.ndindex((3,) * size):
                read = contexts.copy()
                read[:, list(wrong)] = words
                expected += replace(given, contexts=read).p / 3**size
            np.testing.assert_allclose(_averaged(wrong, given), expected, atol=1e-12)


def test_few_rows_are_made_where_the_law_reads_far_back(tmp_path, monkeypatch):
    """Contexts that differ in what is averaged over alone share their rows."""
    pair = plant(tmp_path / "pair", offsets=(1, 2, 16, 17), vocab_size=4, context=64, rng=1)
    made = []
    scores = type(pair.target).scores
    monkeypatch.setattr(
        type(pair.target), "scores", lambda law, read: made.append(len(read)) or scores(law, read)
    )
    contexts = np.random.default_rng(1).integers(4, size=(20_000, 4))
    for wrong in ((0, 1, 2, 3), (0, 2)):
        made.clear()
        _averaged(wrong, Given(pair, Sampling(), FIRST_ORDER, contexts))
        assert sum(made) == 256


@pytest.mark.parametrize(("gamma", "few", "more"), [(1, 0.6, 0.7), (3, 0.31, 0.35), (7, 0.15, 0.2)])
def test_other_rows_are_those_of_nearly_all_places_or_of_a_bonus(gamma, few, more, tmp_path):
    """One token of gamma + 1 is a bonus at most."""
    pair, sampling = plant(tmp_path / "pair", vocab_size=8, rng=1), Sampling(top_k=3)
    asked = Answered(pair, {}, [])
    known = [*known_mistakes.known_mistakes(asked, asked.places(), sampling, FIRST_ORDER, gamma)]
    ignored = next(one for one in known if "top_k_ignored" in one.often)
    assert ignored.seldom == ("top_k_not_in_bonus",)
    assert all(ignored.may_have(0, share) for share in (1.0, 0.8, few))
    assert not any(ignored.may_have(0, share) for share in (0.7, more))
    plain = known_mistakes.known_mistakes(asked, asked.places(), sampling, FIRST_ORDER, 0)
    (ignored,) = (one for one in plain if "top_k_ignored" in one.often)
    assert not ignored.may_have(0, few)
