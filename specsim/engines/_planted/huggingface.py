"""Checkpoints in the format of Hugging Face transformers: configuration, weights, tokenizer."""

import json
from pathlib import Path
from typing import Any

from specsim.core._files import write_text
from specsim.core._json import parse_json
from specsim.core._tensors import read_tensors, save_tensors
from specsim.engines._planted.attention import HEAD_SIZE, THETA
from specsim.engines._planted.weights import Checkpoint, Tensor
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
    """The configuration and the tensors."""
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
    byte_level_options = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": True,
    }
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": eos,
                "content": END,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
        ],
        "normalizer": None,
        "pre_tokenizer": byte_level_options,
        "post_processor": None,
        "decoder": byte_level_options,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": True,
            "vocab": {byte_level(text): number for number, text in enumerate(spelling.texts)},
            "merges": [],
        },
    }
