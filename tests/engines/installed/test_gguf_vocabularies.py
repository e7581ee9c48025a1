"""Vocabularies in GGUF files, which the package gguf writes here."""

import json

import numpy as np
import pytest

from specsim.models import compare_vocabularies
from specsim.models._vocabularies import read_vocabulary

gguf = pytest.importorskip("gguf")
LETTERS = [*"abcdef"]


def written(path, texts=LETTERS, pre="llama-bpe", merge="a b", eot=4, d2t=None):
    writer = gguf.GGUFWriter(path, "llama")
    kinds = [gguf.TokenType.UNUSED if "PAD" in text else gguf.TokenType.NORMAL for text in texts]
    values = {"tokenizer_pre": pre, "token_list": texts, "token_types": kinds, "token_merges": [merge]}
    for name, value in (values | {"bos_token_id": 0, "eos_token_id": 5, "eot_token_id": eot}).items():
        getattr(writer, f"add_{name}")(value)
    if d2t is not None:
        writer.add_tensor("d2t", np.array(d2t))
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


@pytest.mark.parametrize(
    ("d2t", "said"),
    [
        ([4, 0, 2], "the draft's i as d2t[i] (3 tokens of the target, none twice)"),
        ([0, 6, 0], "lead to no token of the target (first: 1 to 6)"),
        ([0, 1, 1], "1 of 3 numbers lead to the token of another"),
    ],
)
def test_heads_lead_to_the_numbers_of_the_target(tmp_path, d2t, said):
    """As llama.cpp has them: the numbers themselves, and all tokens of the target beside them."""
    found = compare_vocabularies(written(tmp_path / "a.gguf"), written(tmp_path / "b.gguf", d2t=d2t))
    assert (found.same, found.draft.drafts, said in str(found)) == (d2t == [4, 0, 2], 3, True)


def test_large_vocabularies_are_read_as_the_package_reads_them(tmp_path):
    path = written(tmp_path / "a.gguf", [f"é{i}" for i in range(3000)])
    whole, fields = read_vocabulary(path), gguf.GGUFReader(path).fields
    assert [*whole.tokens.values()] == fields["tokenizer.ggml.tokens"].contents()


def test_damaged_gguf_files_are_refused(tmp_path):
    whole = written(tmp_path / "a.gguf").read_bytes()
    length = whole.index(b"token_type") + len(b"token_type") + 8  # of that array
    cut = [whole[:end] for end in range(0, len(whole) - 32, 37)]
    for content in (*cut, b"a text", whole[:length] + b"\xff" * 8 + whole[length + 8 :]):
        (tmp_path / "bad.gguf").write_bytes(content)
        with pytest.raises(ValueError, match=r"bad\.gguf: not a tokenizer .*; save it again"):
            compare_vocabularies(tmp_path / "a.gguf", tmp_path / "bad.gguf")
