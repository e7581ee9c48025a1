"""The weights have the law, by a forward pass that knows only the weights; and they are exact in every dtype."""

import ml_dtypes
import numpy as np
import pytest
from refused import refuses

from specsim import plant
from specsim.engines._planted import weights
from specsim.engines._planted.architectures import build
from specsim.engines._planted.check import check, log_probabilities
from specsim.engines._planted.checkpoints import PLANES, config, interleaved
from specsim.engines._planted.folder import random_prompts
from specsim.engines._planted.law import AdditiveLogits, TableLogits, draw_pair

CONTEXT = 128
#: Words, offsets, openers, kind, overlap.
LAWS = {
    "order 0": (2, (), 0, "zipf", 0.6), "order 1": (27, (1,), 0, "geometric", 0.3),
    "order 2": (8, (1, 2), 0, "zipf", 0.6), "order 3": (4, (1, 2, 3), 0, "dirichlet", 0.8),
    "pages": (4, (1, 16, 17, 65), 0, "zipf", 0.6), "one far token": (5, (64,), 0, "zipf", 0.6),
    "an opener": (6, (), 5, "zipf", 0.6), "an opener and words": (4, (1, 2), 3, "zipf", 0.6),
    "disjoint": (6, (1,), 0, "zipf", 0.0), "one-hot": (6, (2,), 0, "one-hot", 0.5),
    "additive": (300, (1, 2), 0, "zipf", 0.6), "additive with openers": (70, (1, 16), 9, "zipf", 0.6),
}  # fmt: skip


def pair(name, seed=1):
    return draw_pair(*LAWS[name], np.random.default_rng(seed))


def deviation(law, tensors, text):
    """The largest |log p - log P| over the places of a text, and the largest log p of what never comes."""
    first = max(1, law.start)
    places = np.arange(first, len(text))
    logs = log_probabilities(config(build(law, CONTEXT), law.words), tensors, text, places)
    expected = law.log_rows(law.contexts(text, first))
    comes = expected > -np.inf
    return np.abs(logs[comes] - expected[comes]).max(), logs[~comes].max()


@pytest.mark.parametrize("name", LAWS)
def test_the_weights_have_the_law(name, full):
    """That of the target, and of the draft too at full scale."""
    for law in pair(name)[: 2 if full else 1]:
        tensors = build(law, CONTEXT).tensors
        text = random_prompts(law, 1, CONTEXT, np.random.default_rng(2))[0]
        largest, never = deviation(law, tensors, text)
        assert largest < 1e-12
        assert never < -4000
        for tensor in tensors.values():
            assert tensor.dtype == np.float32
            for dtype in (ml_dtypes.bfloat16, np.float16):
                assert (tensor.astype(dtype).astype(np.float32) == tensor).all()


def test_tables_and_sums_are_both_tried():
    kinds = {name: type(pair(name)[0].logits) for name in ("order 2", "additive")}
    assert kinds == {"order 2": TableLogits, "additive": AdditiveLogits}


@pytest.mark.parametrize("name", ["order 2", "additive"])
def test_a_step_of_the_grid_is_seen(name):
    """The control: one weight of the head, moved by one step, in a column that texts use."""
    law = pair(name)[0]
    checkpoint = build(law, CONTEXT)
    text = random_prompts(law, 1, CONTEXT, np.random.default_rng(2))[0]
    head = checkpoint.tensors["lm_head.weight"]
    place = np.unravel_index(np.abs(head[: law.words]).argmax(), head[: law.words].shape)
    head[place] += 1 / 32  # norms multiply by 2 or more
    assert deviation(law, checkpoint.tensors, text)[0] > 0.01


@pytest.mark.parametrize("name", ["order 2", "pages", "an opener and words"])
def test_a_head_that_looks_elsewhere_is_seen(name):
    """The control of the heads: without its query a head looks everywhere alike."""
    law = pair(name)[0]
    checkpoint = build(law, CONTEXT)
    text = random_prompts(law, 1, CONTEXT, np.random.default_rng(2))[0]
    checkpoint.tensors["model.layers.0.self_attn.q_proj.weight"][:64] = 0
    assert deviation(law, checkpoint.tensors, text)[0] > 0.1


@pytest.mark.parametrize("heads", ["mtp", "eagle", "eagle3"])
def test_a_head_drafts_what_follows_from_its_weights(heads, tmp_path, monkeypatch):
    """The control reads of the hidden state what is to be read of the token."""
    right = weights.Layout.joined
    for joined, within in ((right, True), (lambda layout: right(layout)[::-1], False)):
        monkeypatch.setattr(weights.Layout, "joined", joined)
        planted = plant(tmp_path / str(within), heads=heads, formats=["hf"], context=CONTEXT, rng=1)
        found = [one for one in check(planted.folder, rng=1).deviations if ", draft " in one.checkpoint]
        assert [one.within for one in found] == [within] * 2


@pytest.mark.parametrize(
    ("words", "offsets", "openers"),
    [(20_000, (1, 2, 3), 2), (1000, (1,), 0), pytest.param(131_072, (1, 2, 3), 2, marks=pytest.mark.slow)],
)
def test_widths_stay_small(words, offsets, openers):
    law = draw_pair(words, offsets, openers, "zipf", 1.0, np.random.default_rng(0))[0]
    checkpoint = build(law, CONTEXT)
    hidden = checkpoint.config["hidden_size"]
    assert hidden <= 1200
    assert checkpoint.config["num_attention_heads"] * 64 == hidden


def scores(head, context, opener=None):
    """The scores of the last position of a context, of every position by its distance; keys are those of
    openers or of all tokens. Queries, keys, rotations and scores are rounded to bfloat16."""

    def half(values):
        return np.asarray(values, dtype=np.float32).astype(ml_dtypes.bfloat16).astype(np.float64)

    def rotated(vector, positions):
        angles = positions[:, None] * weights.FREQUENCIES
        cos, sin, x, y = half(np.cos(angles)), half(np.sin(angles)), vector[:32], vector[32:]
        return half(np.concatenate([half(x * cos) - half(y * sin), half(y * cos) + half(x * sin)], axis=1))

    positions = np.arange(context)
    keys = rotated(head.key, positions)
    if opener is not None:
        keys[positions != opener] = 0
    found = half(half(keys @ rotated(head.query, positions[-1:])[0]) / 8)
    return found[::-1]


@pytest.mark.parametrize("distance", [1, 15, 16, 63, 64, 500])
@pytest.mark.parametrize("context", [600, 8192])
def test_heads_see_one_distance_in_bfloat16(distance, context):
    found = scores(weights.look_back(distance, context), context)
    assert found.argmax() == distance
    assert found[distance] - np.delete(found, distance).max() > 40


@pytest.mark.parametrize("context", [64, 2048, 8192])
def test_heads_see_the_opener_in_bfloat16(context):
    found = scores(weights.look_at_opener(context), context, opener=0)
    assert found[-1] > 40
    assert (found[:-1] == 0).all()


def test_what_cannot_be_told_apart_is_refused():
    refuses(r"cannot distinguish the opener .* choose a shorter one", weights.look_at_opener, 40_000)
    law = pair("pages")[0]
    refuses(r"65 positions do not hold .* at least 66", build, law, 65)
    build(law, 66)


def test_rows_of_planes_are_reordered_and_back():
    matrix = np.arange(128 * 2, dtype=np.float32).reshape(128, 2)
    planes = interleaved(matrix)
    assert planes[:4, 0].tolist() == [0, 64, 2, 66]  # two columns: row 32 begins with 64
    assert (interleaved(planes, PLANES) == matrix).all()
