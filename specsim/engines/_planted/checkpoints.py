"""Checkpoints on disk: in the format of Hugging Face transformers, and as GGUF files of llama.cpp."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from specsim.core._files import atomic_write, write_text
from specsim.core._json import parse_json
from specsim.core._tensors import read_tensors, save_tensors
from specsim.engines._planted.weights import HEAD_SIZE, THETA, Checkpoint, Tensor
from specsim.engines._planted.words import END, Spelling

#: So small that it changes no mean square of float32.
EPSILON = 1e-20


def write_huggingface(folder: Path, checkpoint: Checkpoint, spelling: Spelling) -> None:
    folder.mkdir()
    eos = spelling.texts.index(END)
    save_tensors(folder / "model.safetensors", checkpoint.tensors, {"format": "pt"})
    for name, content in {
        "config.json": config(checkpoint, eos),
        # without top_k and top_p engines sample from all tokens
        "generation_config.json": {"do_sample": True, "temperature": 1.0, **_special_ids(eos)},
        "tokenizer.json": _tokenizer(spelling, eos),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": END,
            "pad_token": END,
            "add_bos_token": False,
            "clean_up_tokenization_spaces": False,
            "model_max_length": checkpoint.context,
        },
    }.items():
        write_text(folder / name, json.dumps(content, indent=1) + "\n")


def read_huggingface(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    tensors, _ = read_tensors(folder / "model.safetensors")
    return parse_json((folder / "config.json").read_bytes()), tensors


def config(checkpoint: Checkpoint, eos: int) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": checkpoint.vocab_size,
        "hidden_size": checkpoint.hidden,
        "intermediate_size": checkpoint.intermediate,
        "num_hidden_layers": 1,
        "num_attention_heads": checkpoint.heads,
        "num_key_value_heads": checkpoint.heads,
        "head_dim": HEAD_SIZE,
        "hidden_act": "silu",
        "max_position_embeddings": checkpoint.context,
        "rms_norm_eps": EPSILON,
        "rope_theta": THETA,
        "rope_parameters": {"rope_type": "default", "rope_theta": THETA},
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "dtype": "float32",
        **_special_ids(eos),
    }


def _special_ids(eos: int) -> dict[str, int]:
    return {"bos_token_id": eos, "eos_token_id": eos, "pad_token_id": eos}


def byte_level(text: str) -> str:
    """A token's text as byte-level vocabularies write it: Ġ is the space."""
    return text.replace(" ", "Ġ")


def _tokenizer(spelling: Spelling, eos: int) -> dict[str, Any]:
    """A byte-level vocabulary in which every pre-token is looked up whole, without merges."""
    pieces = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    plain = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    without = dict.fromkeys(("dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"))
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": eos, "content": END, **plain, "special": True}],
        "normalizer": None,
        "pre_tokenizer": pieces,
        "post_processor": None,
        "decoder": pieces,
        "model": {
            "type": "BPE",
            **without,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": True,
            "vocab": {byte_level(text): number for number, text in enumerate(spelling.texts)},
            "merges": [],
        },
    }


# GGUF, written with the package gguf.

INSTALL = "pip install 'specsim-decoding[gguf]'"
#: The names of llama.cpp for those of transformers.
NAMES = {
    "model.embed_tokens": "token_embd",
    "model.layers.0.input_layernorm": "blk.0.attn_norm",
    "model.layers.0.self_attn.q_proj": "blk.0.attn_q",
    "model.layers.0.self_attn.k_proj": "blk.0.attn_k",
    "model.layers.0.self_attn.v_proj": "blk.0.attn_v",
    "model.layers.0.self_attn.o_proj": "blk.0.attn_output",
    "model.layers.0.post_attention_layernorm": "blk.0.ffn_norm",
    "model.layers.0.mlp.gate_proj": "blk.0.ffn_gate",
    "model.layers.0.mlp.up_proj": "blk.0.ffn_up",
    "model.layers.0.mlp.down_proj": "blk.0.ffn_down",
    "model.norm": "output_norm",
    "lm_head": "output",
}
ROTATED = ("model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.k_proj")


def check_installed() -> None:
    """Raise ValueError unless the package gguf is there."""
    if find_spec("gguf") is None:
        raise ValueError(f"format: gguf needs the package gguf, which is not installed: {INSTALL}")


def write_gguf(path: Path, checkpoint: Checkpoint, spelling: Spelling) -> None:
    import gguf

    with atomic_write(path) as temporary:
        writer = gguf.GGUFWriter(temporary, "llama")
        writer.add_name(path.stem)
        writer.add_file_type(gguf.LlamaFileType.ALL_F32)
        _add_sizes(writer, checkpoint)
        _add_tokenizer(writer, spelling)
        for name, other in NAMES.items():
            tensor = checkpoint.tensors[f"{name}.weight"]
            writer.add_tensor(f"{other}.weight", interleaved(tensor) if name in ROTATED else tensor)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()


def _add_sizes(writer: Any, checkpoint: Checkpoint) -> None:
    writer.add_vocab_size(checkpoint.vocab_size)
    writer.add_context_length(checkpoint.context)
    writer.add_embedding_length(checkpoint.hidden)
    writer.add_block_count(1)
    writer.add_feed_forward_length(checkpoint.intermediate)
    writer.add_head_count(checkpoint.heads)
    writer.add_head_count_kv(checkpoint.heads)
    writer.add_key_length(HEAD_SIZE)
    writer.add_value_length(HEAD_SIZE)
    writer.add_rope_dimension_count(HEAD_SIZE)
    writer.add_rope_freq_base(THETA)
    writer.add_layer_norm_rms_eps(EPSILON)


def _add_tokenizer(writer: Any, spelling: Spelling) -> None:
    """The pre-tokenizer llama-bpe looks up whole words first; the merge that the format wants is unused."""
    import gguf

    eos = spelling.texts.index(END)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("llama-bpe")
    writer.add_token_list([byte_level(text) for text in spelling.texts])
    kinds = [gguf.TokenType.NORMAL] * len(spelling.texts)
    kinds[eos] = gguf.TokenType.CONTROL
    writer.add_token_types(kinds)
    writer.add_token_merges(["Ġ Ġ"])
    writer.add_bos_token_id(eos)
    writer.add_eos_token_id(eos)
    writer.add_pad_token_id(eos)
    writer.add_add_bos_token(False)
    writer.add_add_eos_token(False)
    writer.add_add_space_prefix(False)


def read_gguf(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What the forward pass needs of the configuration, and the tensors, as transformers has them."""
    import gguf

    reader = gguf.GGUFReader(path)
    keys = {
        "head_dim": gguf.Keys.Attention.KEY_LENGTH,
        "rope_theta": gguf.Keys.Rope.FREQ_BASE,
        "rms_norm_eps": gguf.Keys.Attention.LAYERNORM_RMS_EPS,
    }
    config = {name: reader.get_field(key.format(arch="llama")).contents() for name, key in keys.items()}
    stored = {tensor.name: tensor.data for tensor in reader.tensors}
    tensors = {f"{name}.weight": stored[f"{other}.weight"] for name, other in NAMES.items()}
    for name in ROTATED:
        tensors[f"{name}.weight"] = in_halves(tensors[f"{name}.weight"])
    return config, tensors


def interleaved(matrix: Tensor) -> Tensor:
    """The rows of a query or key matrix, reordered within heads: a plane's two rows are neighbours."""
    rows, columns = matrix.shape
    planes = matrix.reshape(rows // HEAD_SIZE, 2, HEAD_SIZE // 2, columns)
    return planes.swapaxes(1, 2).reshape(rows, columns).copy()


def in_halves(matrix: Tensor) -> Tensor:
    """The inverse of `interleaved`."""
    rows, columns = matrix.shape
    planes = matrix.reshape(rows // HEAD_SIZE, HEAD_SIZE // 2, 2, columns)
    return planes.swapaxes(1, 2).reshape(rows, columns).copy()


WRITERS = {"hf": write_huggingface, "gguf": write_gguf}
READERS = {"hf": read_huggingface, "gguf": read_gguf}
