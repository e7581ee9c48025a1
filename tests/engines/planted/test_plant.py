"""Planted folders: made, opened, checked, damaged; texts and prompts; the command."""

import json
import shutil

import numpy as np
import pytest
from commands import run, says
from hypothesis import given
from hypothesis import strategies as st
from refused import refused, refuses

from specsim import open_planted, plant
from specsim.core._json import sealed
from specsim.engines import check
from specsim.engines._planted.folder import Spelling, continued, mean_overlap, overlaps, random_prompts
from specsim.engines._planted.law import _apart, draw_pair


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """A pair of order 2 with openers."""
    return plant(tmp_path_factory.mktemp("planted") / "pair", vocab_size=4, openers=2, context=64, rng=1)


@pytest.fixture
def copy(planted, tmp_path):
    """A folder with the same files, to be damaged."""
    return shutil.copytree(planted.folder, tmp_path, dirs_exist_ok=True)


def test_what_is_opened_is_what_was_planted(planted):
    again = open_planted(planted.folder)
    text = planted.prompts(1, 60, rng=2)[0]
    for one, other in ((planted.target, again.target), (planted.draft, again.draft)):
        contexts = one.contexts(text, one.start)
        assert (one.rows(contexts) == other.rows(contexts)).all()
    assert again.to_dict() == planted.to_dict()
    assert (planted.eos, planted.context, planted.formats, planted.seed) == (4, 64, ("hf",), 1)
    assert planted.target.openers == (5, 6)
    for which in ("target", "draft"):
        assert (planted.checkpoint(which, "hf") / "model.safetensors").is_file()


def test_the_seed_decides(planted, tmp_path):
    options = {"vocab_size": 4, "openers": 2, "context": 64}
    assert plant(tmp_path / "same", rng=1, **options).digest == planted.digest
    assert plant(tmp_path / "other", rng=2, **options).digest != planted.digest


@pytest.mark.parametrize(("overlap", "kind"), [(0.0, "zipf"), (0.6, "zipf"), (1.0, "zipf"), (0.7, "one-hot")])
def test_the_overlap_is_as_asked_for_in_every_context(overlap, kind):
    target, draft = draw_pair(8, (1, 2), 0, kind, overlap, np.random.default_rng(3))
    found = overlaps(target, draft, np.indices((8, 8)).reshape(2, -1).T)
    np.testing.assert_allclose(found, overlap, atol=0.03 * (0 < overlap < 1) + 1e-12)


def test_no_two_words_of_a_table_are_equally_probable():
    contexts = np.argwhere(np.ones((8, 8)))
    for law in draw_pair(8, (1, 2), 0, "zipf", 0.6, np.random.default_rng(1)):
        ranked = np.sort(law.rows(contexts)[:, :8], axis=1)
        assert (ranked[:, 1:] > ranked[:, :-1]).all()


def test_equal_logits_are_moved_apart_where_the_range_allows_it():
    logits = np.array([[0, -1, -1, -np.inf, -1, -1.0625], [0, -16, -16, -3, -3, -np.inf]])
    moved = [0, -1, -1.0625, -np.inf, -1.125, -1.1875]
    np.testing.assert_array_equal(_apart(logits, 16.0), [moved, logits[1]])


@pytest.mark.parametrize(("options", "alpha"), [({"overlap": 1.0}, 1.0), ({"overlap": 0.0}, 0.0)])
@pytest.mark.parametrize("offsets", [(1, 2), (1, 17)])
def test_drafts_that_are_the_target_or_nothing_of_it_can_be_planted(options, alpha, offsets, tmp_path, full):
    for seed in range(3 if full else 1):
        made = plant(tmp_path / str(seed), offsets=offsets, rng=seed, **options)
        assert made.alpha == pytest.approx(alpha, abs=1e-9)
        assert made.alpha <= 1.0
        assert made.tokens_per_step(4) == pytest.approx(1.0 + 4.0 * alpha)


def test_additive_laws_have_the_overlap_on_average():
    target, draft = draw_pair(70, (1, 2), 0, "zipf", 0.4, np.random.default_rng(3))
    contexts = np.random.default_rng(4).integers(70, size=(2000, 2))
    assert abs(overlaps(target, draft, contexts).mean() - 0.4) < 0.02


@pytest.mark.parametrize("openers", [0, 3])
def test_the_mean_overlap_is_that_of_a_long_text(openers):
    """A pair whose rows were exchanged between contexts, so that the overlap differs between them."""
    target, _ = draw_pair(4, (1, 2), openers, "dirichlet", 0.5, np.random.default_rng(5))
    other, _ = draw_pair(4, (1, 2), openers, "dirichlet", 0.5, np.random.default_rng(6))
    found, over = mean_overlap(target, other, np.random.default_rng(0))
    rng = np.random.default_rng(7)
    texts = continued(target, random_prompts(target, 3000, 4, rng), 40, rng)
    measured = overlaps(target, other, target.contexts_at(texts, 43))
    assert "stationary" in over
    assert abs(found - measured.mean()) < 5 * measured.std() / np.sqrt(3000)
    cycle = [*target.openers[:1], *[0, 1, 2, 3] * 40]
    elsewhere = overlaps(target, other, target.contexts(cycle, 4))
    assert abs(found - elsewhere.mean()) > 0.02  # the control: the mean over contexts of another text


def test_texts_follow_the_law():
    from specsim.core.stats import chi_square

    target, draft = draw_pair(4, (1, 16), 0, "zipf", 0.6, np.random.default_rng(5))
    rng = np.random.default_rng(8)
    texts = continued(target, random_prompts(target, 4000, 16, rng), 4, rng)
    for law, agrees in ((target, True), (draft, False)):
        counts = np.zeros((4, 4, 5), dtype=np.int64)
        np.add.at(counts, (*target.contexts_at(texts, 19).T, texts[:, 19]), 1)
        values = [
            chi_square(counts[a, b, :4], law.rows([[a, b]])[0, :4]).p_value
            for a in range(4)
            for b in range(4)
        ]
        assert (min(values) > 1e-9) == agrees


def test_prompts(planted):
    prompts = planted.prompts(50, 12, rng=3)
    assert prompts.shape == (50, 12)
    assert set(prompts[:, 0]) == {5, 6}
    assert prompts[:, 1:].max() < 4
    assert (prompts == planted.prompts(50, 12, rng=3)).all()
    for length in (2, 64):
        refuses(rf"length: {length} is outside 3 … 63", planted.prompts, 1, length)


@given(st.lists(st.integers(0, 799), max_size=12))
def test_text_and_tokens_are_one_to_one(tokens):
    spelling = Spelling(750, 49)
    text = spelling.decode(tokens)
    assert spelling.encode(text) == tokens
    assert spelling.encode(text.removeprefix(" ")) == tokens


def test_texts_differ():
    assert len(set(Spelling(20_000, 1000).texts)) == 21_001
    assert Spelling(30, 2).decode([0, 25, 26, 31]) == " a z aa A"


@pytest.mark.parametrize("text", [" a  b", " a b9", " a e", " a B C", "é", " a \x00", " ab", " a<|end|", "<"])
def test_other_texts_are_refused(planted, text):
    refuses(r"text, character \d+: .* does not begin with a token", planted.encode, text)


def test_tokens_outside_the_vocabulary_are_refused(planted):
    for token in (7, -1):
        with pytest.raises(
            ValueError, match=rf"tokens, position 1: {token} is outside the vocabulary \[0, 7\)"
        ):
            planted.decode([0, token])


def test_the_tokenizer_knows_the_same_texts(planted):
    made = json.loads((planted.folder / "target/tokenizer.json").read_text(encoding="utf-8"))
    vocabulary = made["model"]["vocab"]
    assert [text.replace("Ġ", " ") for text in vocabulary] == planted.spelling.texts
    assert list(vocabulary.values()) == [*range(7)]
    assert made["added_tokens"][0]["id"] == planted.eos


# --- damage -------------------------------------------------------------------------------------------------


def test_checkpoints_are_checked(planted):
    found = check(planted.folder, rng=0)
    assert found.passed
    assert found.exit_code == 0
    assert [one.checkpoint for one in found.deviations] == ["target", "draft"]
    assert max(one.largest for one in found.deviations) < 1e-12
    assert found.tolerance("float64") == 1e-6
    refuses("'float32' was not checked", found.tolerance, "float32")


def test_weights_of_another_law_are_refused(copy):
    """One weight, moved by one step of the grid."""
    from safetensors.numpy import load_file, save_file

    file = copy / "target/model.safetensors"
    tensors = load_file(file)
    tensors["lm_head.weight"][0, 20] += 1 / 64
    save_file(tensors, file)
    for opened in (lambda: check(copy, rng=0), lambda: open_planted(copy).checkpoint("target", "hf")):
        refuses(r"target/model.safetensors: not the file that was planted", opened)
    assert open_planted(copy).checkpoint("draft", "hf")


def test_wrong_weights_fail_the_check_even_if_all_digests_agree(copy):
    from safetensors.numpy import load_file, save_file

    from specsim.core._files import sha256_of
    from specsim.engines._planted.law import digest_of

    file = copy / "target/model.safetensors"
    tensors = load_file(file)
    weights = tensors["lm_head.weight"][0]
    weights[weights != 0] += 1 / 64
    save_file(tensors, file)
    opened, manifest = open_planted(copy), json.loads((copy / "planted.json").read_text())
    manifest["files"]["target/model.safetensors"] = sha256_of(file)
    (copy / "planted.json").write_text(json.dumps(sealed(manifest)))
    refuses(r"weights in format hf do not have the digest", check, copy, rng=0)
    weights = (tensors, load_file(copy / "draft/model.safetensors"))
    manifest["digest"] = digest_of((opened.target, opened.draft), weights)
    (copy / "planted.json").write_text(json.dumps(sealed(manifest)))
    found = check(copy, rng=0)
    assert [one.within for one in found.deviations] == [False, True]
    assert found.deviations[0].largest > 0.005
    assert found.exit_code == 1


def test_a_law_of_other_weights_is_refused(copy, tmp_path_factory):
    other = plant(tmp_path_factory.mktemp("other"), vocab_size=4, openers=2, context=64, rng=2)
    (copy / "law.npz").write_bytes((other.folder / "law.npz").read_bytes())
    refuses(r"law.npz: not the file that was planted", open_planted, copy)


@refused(
    (b"", "damaged, not JSON"),
    (b"[" * 100_000, "damaged, not JSON"),
    (b"[]", "does not say format"),
    (b'{"format": "specsim-planted", "version": 9}', "this program reads 2"),
    (b'{"format": "specsim-planted", "version": 2}', "does not have the SHA-256 that it states"),
    (json.dumps(sealed({"format": "specsim-planted", "version": 2})).encode(), "digest is None"),
)
def test_damaged_manifests(content, copy):
    (copy / "planted.json").write_bytes(content)
    open_planted(copy)


def test_missing_files(copy, tmp_path_factory):
    (copy / "target/config.json").unlink()
    with pytest.raises(ValueError, match=r"config.json: missing"):
        open_planted(copy).checkpoint("target", "hf")
    (copy / "law.npz").unlink()
    refuses(r"law.npz: missing", open_planted, copy)
    with pytest.raises(ValueError, match=r"not a folder of planted checkpoints"):
        open_planted(tmp_path_factory.mktemp("empty"))


def test_a_file_that_holds_no_laws(tmp_path):
    from specsim.engines._planted.law import read_laws

    for content in (b"", b"PK\x03\x04nonsense", b"\x93NUMPY"):
        (tmp_path / "law.npz").write_bytes(content)
        refuses("damaged, or without distributions", read_laws, tmp_path / "law.npz")


def test_checkpoints_that_are_not_there(planted):
    refuses(r"no checkpoints in format gguf; .*--format hf,gguf", planted.checkpoint, "target", "gguf")
    refuses("'onnx' is unknown; give one of hf, gguf", planted.checkpoint, "target", "onnx")
    refuses("'drafter' is unknown; give one of target, draft", planted.checkpoint, "drafter", "hf")


@refused(
    ({"vocab_size": 1}, "vocab_size: 1 is not at least 2"),
    ({"vocab_size": 131_073}, "not at most 131,072"), ({"order": -1}, "order: -1 is not at least 0"),
    ({"order": 9}, "order: 9 is not at most 8"), ({"order": 1, "offsets": (1,)}, "give one of them"),
    ({"offsets": (2, 1)}, "do not ascend"), ({"offsets": (0,)}, "offsets: 0 is not at least 1"),
    ({"openers": 1}, "openers: 1 has no other"), ({"openers": -1}, "openers: -1 is not at least 0"),
    ({"context": 2}, "at least 3"), ({"offsets": (5000,)}, "at least 5001"),
    ({"overlap": 1.5}, "overlap: 1.5 is outside"),
    ({"overlap": float("nan")}, "overlap: nan is outside"), ({"kind": "foo"}, "unknown kind 'foo'"),
    ({"formats": ("hf", "onnx")}, "'onnx' is unknown; give one of hf, gguf"),
    ({"formats": ()}, "format: the list is empty"),
    ({"generation_config": {"top_k": 2.5}}, TypeError, "top_k: expected an int, got float"),
)  # fmt: skip
def test_bad_arguments_write_nothing(options, nowhere):
    plant(nowhere, rng=1, **options)


def test_nothing_is_overwritten(planted):
    for folder in (planted.folder, planted.folder / "law.npz"):
        refuses(r"not empty|a file", plant, folder, rng=1, error=FileExistsError)


def test_gguf_needs_its_package(tmp_path, monkeypatch):
    monkeypatch.setattr("specsim.engines._planted.checkpoints.find_spec", lambda name: None)
    refuses(r"pip install .*, in a clone '\.\[gguf\]'", plant, tmp_path / "new", formats=("gguf",), rng=1)


def test_dtypes_need_their_packages(planted, monkeypatch):
    monkeypatch.setattr("specsim.engines._planted.check.find_spec", lambda name: None)
    refuses("torch and transformers.* pip install both", check, planted.folder, dtypes=["float32"], rng=0)
    with pytest.raises(ValueError, match="'int8' is unknown; give one of float32, float16, bfloat16"):
        check(planted.folder, dtypes=["int8"], rng=0)


# --- the command --------------------------------------------------------------------------------------------


def test_the_command_plants_and_checks(tmp_path):
    options = ("--offsets", "1,5", "--vocab-size", 4, "--context", 64, "--seed", 1)
    said = says("reading offsets 1, 5", "plant", tmp_path / "pair", *options)
    assert open_planted(tmp_path / "pair").digest[:16] in said
    assert "vllm serve target --max-model-len 64" in (tmp_path / "pair/SERVE.md").read_text()
    assert json.loads(says("{", "plant", "--check", tmp_path / "pair", "--json"))["passed"]
    assert "fine" in run("plant", "--check", tmp_path / "pair").out


def test_the_command_prints_json(tmp_path):
    ran = run("plant", tmp_path / "pair", "--order", 0, "--vocab-size", 2, "--seed", 1, "--json")
    assert json.loads(ran.out) == open_planted(tmp_path / "pair").to_dict()
