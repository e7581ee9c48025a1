"""Vocabularies in GGUF files, which the package gguf writes here."""

import json

import pytest

from specsim.models import compare_vocabularies

gguf = pytest.importorskip("gguf")
LETTERS = [*"abcdef"]


def written(path, texts=LETTERS, pre="llama-bpe", merge="a b", eot=4):
    writer = gguf.GGUFWriter(path, "llama")
    kinds = [gguf.TokenType.UNUSED if "PAD" in text else gguf.TokenType.NORMAL for text in texts]
    values = {"tokenizer_pre": pre, "token_list": texts, "token_types": kinds, "token_merges": [merge]}
    for name, value in (values | {"bos_token_id": 0, "eos_token_id": 5, "eot_token_id": eot}).items():
        getattr(writer, f"add_{name}")(value)
    for part in ("header", "kv_data", "tensors"):
        getattr(writer, f"write_{part}_to_file")()
    writer.close()
    return path


def test_a_gguf_file_is_compared_with_a_folder_and_with_another(tmp_path):
    padded = written(tmp_path / "a.gguf", [*LETTERS, "[PAD6]"])
    model = {"type": "BPE", "vocab": {letter: i for i, letter in enumerate(LETTERS)}, "merges": ["a b"]}
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": model}))
    found = compare_vocabularies(tmp_path, padded)
    assert (found.same, found.read_otherwise, found.draft.padding) == (True, (), 1)
    assert found.draft.ends == {"bos": [0], "eos": [4, 5]}
    assert found.findings[0].startswith("normalizer, pre_tokenizer, unk, added tokens: not compared")
    other = compare_vocabularies(padded, written(tmp_path / "b.gguf", pre="qwen2", merge="b c", eot=3))
    assert (other.same, other.read_otherwise) == (True, ("ggml.pre", "merges"))
    assert "eos differs" in str(other)
    assert compare_vocabularies(padded, written(tmp_path / "c.gguf", [*"bacdef"])).moved == 2


def test_damaged_gguf_files_are_refused(tmp_path):
    whole = written(tmp_path / "a.gguf").read_bytes()
    length = whole.index(b"token_type") + len(b"token_type") + 8  # of that array
    cut = [whole[:end] for end in range(0, len(whole) - 32, 37)]
    for content in (*cut, b"a text", whole[:length] + b"\xff" * 8 + whole[length + 8 :]):
        (tmp_path / "bad.gguf").write_bytes(content)
        with pytest.raises(ValueError, match=r"bad\.gguf: not a tokenizer .*; save it again"):
            compare_vocabularies(tmp_path / "a.gguf", tmp_path / "bad.gguf")
