"""Vocabularies: which tokens of two tokenizers have the same numbers, read from the files of models."""

import json
import sys

import numpy as np
import pytest
from cases import cases
from refused import refused, refuses

from specsim.core._tables import to_text
from specsim.core._tensors import save_tensors
from specsim.models import compare_vocabularies

LETTERS = {letter: number for number, letter in enumerate("abcdef")}


def folder(tmp_path, name, content, config=None, file="tokenizer.json"):
    place = tmp_path / name
    place.mkdir()
    (place / file).write_text(content if isinstance(content, str) else json.dumps(content))
    if config is not None:
        (place / "config.json").write_text(json.dumps(config))
    return place


def bpe(vocab=LETTERS, **more):
    return {"model": {"type": "BPE", "vocab": vocab}} | more


def test_the_same_tokens_with_other_padding(tmp_path):
    large = folder(tmp_path, "large", bpe(), {"vocab_size": 8, "eos_token_id": [5, 4], "pad_token_id": None})
    small = folder(tmp_path, "small", bpe(), {"text_config": {"vocab_size": 16}, "eos_token_id": 5})
    found = compare_vocabularies(large, small)
    assert (found.same, found.alike, found.moved, found.exit_code) == (True, 6, 0, 0)
    assert [(one.rows, one.padding) for one in (found.target, found.draft)] == [(8, 2), (16, 10)]
    text = str(found)
    assert "cut both to the tokens" in text
    assert "eos differs: decode with that of the target" in text
    found = compare_vocabularies(folder(tmp_path, "bare", bpe()), small)
    assert found.findings == ("eos: the draft's files name it, the target's do not; name it there too",)


def test_tokens_beyond_the_rows_are_told(tmp_path):
    found = compare_vocabularies(
        folder(tmp_path, "one", bpe(), {"vocab_size": 8}), folder(tmp_path, "other", bpe(), {"vocab_size": 2})
    )
    beyond = len(found.draft.tokens) - 2
    assert found.same
    assert found.draft.without_row == beyond
    assert f"{beyond} tokens of the draft have numbers beyond its rows, which end before 2" in str(found)
    assert "tokens of the target have numbers beyond" not in str(found)


def test_added_tokens_count(tmp_path):
    end = {"added_tokens": [{"id": 6, "content": "<end>"}]}
    with_end = folder(tmp_path, "a", bpe(**end))
    other = folder(tmp_path, "b", bpe(added_tokens=[{"id": 6, "content": "<stop>"}]))
    found = compare_vocabularies(with_end, other)
    assert found.differences == ((6, "<end>", "<stop>"),)
    assert (found.alike, found.only_target, found.only_draft) == (6, 1, 1)
    assert compare_vocabularies(with_end, folder(tmp_path, "c", bpe(**end))).same


@pytest.mark.parametrize(*cases(__file__, "special"))
def test_special_tokens_are_those_of_the_first_file(tmp_path, generation, config, naming, ends, finding):
    place = folder(tmp_path, "one", bpe(), config)
    (place / "generation_config.json").write_text(json.dumps(generation))
    (place / "tokenizer_config.json").write_text(json.dumps(naming))
    found = compare_vocabularies(place, place)
    assert (found.same, found.target.ends) == (True, ends)
    assert len(found.findings) == (finding is not None)
    assert finding is None or (finding in found.findings[0] and finding in str(found))


def test_the_file_of_a_special_token_is_said(tmp_path):
    """Files with texts count too, after those with numbers; where they disagree, the output says so."""
    target = folder(tmp_path, "target", bpe(), {"eos_token_id": 4})
    draft = folder(tmp_path, "draft", bpe())
    (draft / "special_tokens_map.json").write_text(
        json.dumps({"eos_token": {"content": "e"}, "bos_token": "a"})
    )
    found = compare_vocabularies(target, draft)
    assert (found.target.ends, found.draft.ends) == ({"eos": [4]}, {"eos": [4], "bos": [0]})
    assert found.findings == ("bos: the draft's files name it, the target's do not; name it there too",)
    text = str(found)
    assert "4 (config.json)" in text
    assert "4 (special_tokens_map.json)" in text
    (draft / "tokenizer_config.json").write_text('{"eos_token": "f"}')
    said = "eos is [5] in tokenizer_config.json, [4] in special_tokens_map.json; engines read one or another"
    found = compare_vocabularies(target, draft)
    assert said in str(found)
    assert "eos differs: decode with that of the target" in found.findings


def test_how_texts_are_read_is_a_warning(tmp_path):
    """The numbers mean the same, so drafts are valid, but a lowercasing draft is not the same tokenizer."""
    model = {"type": "BPE", "vocab": LETTERS, "merges": ["a b", "c d"]}
    target = folder(tmp_path, "target", {"normalizer": None, "model": model | {"byte_fallback": False}})
    for name, changed, more in [
        ("", {"merges": [["a", "b"], ["c", "d"]], "unk_token": ""}, {}),
        ("normalizer", {}, {"normalizer": {"type": "Lowercase"}}),
        ("merges", {"merges": ["c d", "a b"]}, {}),
        ("unk", {"unk_token": "a"}, {}),
        ("decoder", {}, {"decoder": {"type": "ByteLevel", "trim_offsets": True}}),
        ("added tokens", {}, {"added_tokens": [{"id": 5, "content": "f", "special": True}]}),
    ]:
        found = compare_vocabularies(target, folder(tmp_path, f"{name} ", bpe(**more, model=model | changed)))
        assert (found.read_otherwise, found.same, found.exit_code) == ((name,) if name else (), True, 0)
        assert ("the same numbers, not the same tokenizer" if name else "the same: p and q can") in str(found)
    found = compare_vocabularies(target, folder(tmp_path, "txt", "\n".join(LETTERS), file="vocab.txt"))
    assert found.findings[0].startswith("normalizer, pre_tokenizer, merges, unk, added tokens: not compared")


@pytest.mark.parametrize(*cases(__file__, "maps"))
def test_heads_with_fewer_tokens_need_a_map(tmp_path, d2t, t2d, fault):
    target = folder(tmp_path, "target", bpe(), {"vocab_size": 8})
    head = folder(tmp_path, "head", "", {"vocab_size": 8, "draft_vocab_size": 3}, file="README.md")
    tensors = {"model.d2t": d2t, "t2d": t2d, "other": [1.0]}
    save_tensors(head / "model.safetensors", {k: np.array(v) for k, v in tensors.items() if v is not None})
    found = compare_vocabularies(target, head)
    assert (found.same, found.exit_code, len(found.faults)) == (not fault, bool(fault), bool(fault))
    assert (fault or "the draft's i as d2t[i] + i (3 tokens of the target, none twice)") in str(found)
    assert fault or (found.reached, found.shared) == (3, 0.5)
    assert "reduced draft vocabulary – 3" in " ".join(to_text(found.parts()).split())


def test_a_head_that_pytorch_pickled_is_read_and_nothing_else_in_it(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    target = folder(tmp_path, "target", bpe(), {"vocab_size": 8})
    head = folder(tmp_path, "head", "", {"draft_vocab_size": 3}, file="README.md")
    tensors = {"d2t": torch.tensor([1, 1, 3]), "fc": torch.ones(2).bfloat16()}
    for content, zipped in ((tensors, True), (tensors, False), (tensors | {"fc": tmp_path}, True)):
        torch.save(content, head / "pytorch_model.bin", _use_new_zipfile_serialization=zipped)
        if content is tensors:
            assert compare_vocabularies(target, head).same
    for version, said in (
        (torch.__version__, r"damaged \(Unpickl.*\); save"),
        ("2.5.1", "may run what is in"),
    ):
        monkeypatch.setattr(torch, "__version__", version)
        with pytest.raises(ValueError, match=said):
            compare_vocabularies(target, head)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ModuleNotFoundError, match="pip install torch, or save it as safetensors"):
        compare_vocabularies(target, head)


def test_gguf_files_need_their_package(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "gguf", None)
    (tmp_path / "a.gguf").touch()
    with pytest.raises(ModuleNotFoundError, match=r"a\.gguf needs gguf, .* 'specsim-decoding\[gguf\]'"):
        compare_vocabularies(tmp_path / "a.gguf", tmp_path)


def test_every_kind_of_file(tmp_path):
    """One vocabulary five times: a byte-pair tokenizer, pieces with scores, and the older files."""
    pieces = {"model": {"type": "Unigram", "vocab": [[letter, -1.0] for letter in LETTERS]}}
    places = [
        folder(tmp_path, "bpe", bpe()),
        folder(tmp_path, "unigram", pieces),
        folder(tmp_path, "json", LETTERS, file="vocab.json"),
        folder(tmp_path, "txt", "\n".join(LETTERS) + "\n", file="vocab.txt"),
        tmp_path / "bpe" / "tokenizer.json",
    ]
    assert all(compare_vocabularies(places[0], place).same for place in places)
    assert compare_vocabularies(places[0], places[1]).to_csv() == "number,target,draft\n"
    found = compare_vocabularies(places[0], folder(tmp_path, "swapped", bpe(dict(LETTERS, a=1, b=0))))
    assert (found.same, found.moved, found.alike, found.shared) == (False, 2, 4, 1.0)
    assert "good drafts are rejected" in str(found)
    assert found.to_dict()["differences"] == [[0, "a", "b"], [1, "b", "a"]]
    assert found.records()[0] == {"number": 0, "target": "a", "draft": "b"}


@refused(
    ("{", "not a tokenizer"),
    ("[1]", "not a tokenizer"),
    ('{"model": {}}', "not a tokenizer"),
    ('{"model": {"vocab": {"a": "x"}}}', "'x' is not the number of a token"),
    ('{"model": {"vocab": {"a": -1}}}', "-1 is not the number"),
    ('{"model": {"vocab": {"a": 0, "b": 0}}}', "two tokens have one number"),
    ('{"model": {"vocab": {}}}', "without tokens"),
    ('{"model": {"vocab": [[{}, 0]]}}', "some are not texts"),
    ("[" * 100_000, "nested too deeply"),
    pattern="bad.*{}".format,
)
def test_files_that_are_no_tokenizer(content, tmp_path):
    compare_vocabularies(folder(tmp_path, "good", bpe()), folder(tmp_path, "bad", content))


def test_folders_without_a_tokenizer(tmp_path):
    good = folder(tmp_path, "good", bpe())
    (tmp_path / "empty").mkdir()
    refuses(r"empty: no tokenizer\.json", compare_vocabularies, good, tmp_path / "empty")
    refuses("missing", compare_vocabularies, tmp_path / "missing", good, error=OSError)
    broken = folder(tmp_path, "broken", bpe())
    for content in ("[", "[1]", '{"added_tokens_decoder": [1]}', '{"text_config": 1}'):
        for name in ("tokenizer_config", "config", "generation_config"):
            (broken / f"{name}.json").write_text(content)
            refuses(rf"{name}\.json: not the configuration", compare_vocabularies, good, broken)
            (broken / f"{name}.json").unlink()
