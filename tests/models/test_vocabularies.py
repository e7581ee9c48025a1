"""Vocabularies: which tokens of two tokenizers have the same numbers, read from the files of models."""

import json

import pytest

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
    assert "eos differ: decode with those of the target" in text


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
    swapped = dict(LETTERS, a=1, b=0)
    found = compare_vocabularies(places[0], folder(tmp_path, "swapped", bpe(swapped)))
    assert (found.same, found.moved, found.alike, found.shared) == (False, 2, 4, 1.0)
    assert "do not hold" in str(found)
    assert found.to_dict()["differences"] == [[0, "a", "b"], [1, "b", "a"]]
    assert found.records()[0] == {"number": 0, "target": "a", "draft": "b"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not a tokenizer"),
        ("[1]", "not a tokenizer"),
        ('{"model": {}}', "not a tokenizer"),
        ('{"model": {"vocab": {"a": "x"}}}', "'x' is not the number of a token"),
        ('{"model": {"vocab": {"a": -1}}}', "-1 is not the number"),
        ('{"model": {"vocab": {"a": 0, "b": 0}}}', "two tokens have one number"),
        ('{"model": {"vocab": {}}}', "without tokens"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_files_that_are_no_tokenizer(tmp_path, content, message):
    good = folder(tmp_path, "good", bpe())
    with pytest.raises(ValueError, match=message) as caught:
        compare_vocabularies(good, folder(tmp_path, "bad", content))
    assert "bad" in str(caught.value)


def test_folders_without_a_tokenizer(tmp_path):
    good = folder(tmp_path, "good", bpe())
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"empty: no tokenizer\.json"):
        compare_vocabularies(good, tmp_path / "empty")
    with pytest.raises(OSError, match="missing"):
        compare_vocabularies(tmp_path / "missing", good)
    broken = folder(tmp_path, "broken", bpe())
    (broken / "config.json").write_text("[")
    with pytest.raises(ValueError, match=r"config\.json: not the configuration"):
        compare_vocabularies(good, broken)
