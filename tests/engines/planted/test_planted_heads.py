"""A head that reads hidden states: what it drafts, and how much of that a text has."""

import numpy as np
import pytest

from specsim import audit_engine, open_planted, plant
from specsim.engines import Sampling
from specsim.engines._audit.counters import _counts, accepted_at, head_drafts
from specsim.engines._server.decoding import Decoder


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("planted") / "pair"
    return plant(folder, architecture="gated-delta", heads="mtp", formats=("hf",), context=128, rng=1)


@pytest.mark.parametrize(("stale", "late"), [(0, 0), (1, 0), (0, 1)])
def test_a_draft_is_the_likeliest_token_after_the_newest_one_and_what_the_hidden_state_remembers(
    planted, stale, late
):
    law, rng = planted.target, np.random.default_rng(2)
    text = rng.integers(4, size=60)  # of few words, so that drafts are accepted
    table = law.logits.table.copy()
    table[..., 4:] = -100.0
    law = type(law)(law.vocab_size, law.offsets, law.openers, type(law.logits)(table), law.memory)
    found = accepted_at(law, text, 3, stale, late)
    for place in range(3, 60):
        seen = [*text[:place].tolist()]
        read = place - 2 - stale  # what followed the last token like the one there, if any
        word = next((seen[i + 1] for i in range(read - 1, -1, -1) if seen[i] == seen[read]), None)
        row, drafts = table[:, 12 if word is None else word], []
        for i in range(3):
            drafts.append(int(row[[*seen, *drafts][place - 1 + i - late]].argmax()))
        same = [a == b for a, b in zip(drafts, text[place:].tolist(), strict=False)]
        assert found[place] == (same.index(False) if False in same else len(same))
    assert {1, 2, 3} <= set(found)


def test_the_file_of_the_law_has_the_drafts(planted):
    table = np.load(planted.folder / "law.npz")["target_table"]
    assert (table.argmax(axis=-1) == head_drafts(planted.target)).all()
    assert len(np.unique(head_drafts(planted.target))) > 6
    assert (planted.heads, open_planted(planted.folder).to_dict()["heads"]) == ("mtp", "mtp")


@pytest.mark.parametrize(
    ("accepted", "counts"),
    [
        ([0, 0, 0], [3, 0, 12, 0]),  # 4 drafts each time, or 2 and 1 and none
        ([1, 0, 0], [2, 1, 8, 1]),
        ([0, 2, 0], [3, 1, 8, 4]),  # what is drafted behind the end may be accepted
        ([2, 0, 0], [2, 2, 4, 2]),
        ([3, 0, 0], [2, 2, 4, 4]),
    ],
)
def test_the_counts_of_a_text(accepted, counts):
    assert _counts(np.array([9, *accepted]), 1, 4) == counts


def test_what_a_head_needs(planted, tmp_path):
    for options, message in [
        ({}, "heads mtp: architecture: 'llama' is unknown; give one of gated-delta"),
        ({"architecture": "gated-delta", "vocab_size": 8}, "vocab_size: 8 is not at least 9"),
        ({"architecture": "gated-delta", "vocab_size": 32}, "vocab_size: 32 is not at most 31"),
    ]:
        with pytest.raises(ValueError, match=message):
            plant(tmp_path / "new", heads="mtp", **options)
    without = plant(tmp_path / "without", vocab_size=4, context=64, rng=1)
    with pytest.raises(ValueError, match="head_stale is of a state, experts or a head that this pair lacks"):
        Decoder(without, mistake="head_stale")


@pytest.mark.parametrize("mistake", [None, "head_stale"])
def test_a_head_drafts_the_same_however_rows_are_processed(planted, mistake):
    """A banned token too, and tokens that penalties make improbable."""
    sampling = Sampling(temperature=1.5, top_k=6, repetition_penalty=2.0, logit_bias=((10, -100.0), (0, 2.0)))
    found = audit_engine("specsim", planted, tokens=1_000, sampling=sampling, mistake=mistake, rng=1)
    assert [one.kind for one in found.findings] == ["counters"] * bool(mistake)
    assert [one.name for one in found.diagnosis] == ["head_stale"] * bool(mistake)
