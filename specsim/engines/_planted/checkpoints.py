"""Checkpoints on disk: in the format of Hugging Face transformers, and as GGUF files of llama.cpp."""

import json
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from specsim.core._files import atomic_write, read_table, write_text
from specsim.core._json import parse_json
from specsim.core._tables import installing
from specsim.core._tensors import read_tensors, save_tensors
from specsim.engines._planted.architectures import HEADS, Checkpoint
from specsim.engines._planted.folder import END, Spelling
from specsim.engines._planted.weights import HEAD_SIZE, Tensor

#: A chat is what its messages say.
CHAT_TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"


def write_huggingface(folder: Path, checkpoint: Checkpoint, spelling: Spelling) -> None:
    folder.mkdir()
    eos = spelling.texts.index(END)
    save_tensors(folder / "model.safetensors", checkpoint.tensors, {"format": "pt"})
    for name, content in {
        "config.json": config(checkpoint, eos),
        # without top_k and top_p engines sample from all tokens
        "generation_config.json": {"do_sample": True, "temperature": 1.0}
        | checkpoint.defaults
        | _special_ids(eos),
        "tokenizer.json": _tokenizer(spelling, eos),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": END,
            "pad_token": END,
            "add_bos_token": False,
            "chat_template": CHAT_TEMPLATE,
            "clean_up_tokenization_spaces": False,
            "model_max_length": checkpoint.config["max_position_embeddings"],
        },
    }.items():
        write_text(folder / name, json.dumps(content, indent=1) + "\n")


def read_huggingface(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    tensors, _ = read_tensors(folder / "model.safetensors")
    return parse_json((folder / "config.json").read_bytes()), tensors


def config(checkpoint: Checkpoint, eos: int) -> dict[str, Any]:
    return checkpoint.config | {"torch_dtype": "float32", "dtype": "float32", **_special_ids(eos)}


def _special_ids(eos: int) -> dict[str, int]:
    return {"bos_token_id": eos, "eos_token_id": eos, "pad_token_id": eos}


def byte_level(text: str) -> str:
    """A token's text as byte-level vocabularies write it: Ġ is the space."""
    return text.replace(" ", "Ġ")


def _tokenizer(spelling: Spelling, eos: int) -> dict[str, Any]:
    """A byte-level vocabulary in which every pre-token is looked up whole, without merges."""
    found: dict[str, Any] = parse_json((Path(__file__).parents[2] / "data/tokenizer.json").read_bytes())
    found["added_tokens"][0] |= {"id": eos, "content": END}
    found["model"]["vocab"] = {byte_level(text): number for number, text in enumerate(spelling.texts)}
    return found


# GGUF, written with the package gguf.

PLANES = HEAD_SIZE // 2


Way = tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]
#: How llama.cpp stores a tensor of transformers: the way there, and the way back.
WAYS: dict[str, Way] = {
    "unchanged": (lambda tensor: tensor, lambda tensor: tensor),
    "one more": (lambda tensor: tensor + 1, lambda tensor: tensor - 1),
    "turned": (lambda tensor: interleaved(tensor), lambda tensor: interleaved(tensor, PLANES)),
    "convolution": (lambda tensor: tensor[:, 0], lambda tensor: tensor[:, None]),
    "column": (lambda tensor: tensor[:, None], lambda tensor: tensor[:, 0]),
    "row": (lambda tensor: tensor[None], lambda tensor: tensor[0]),
    "decay": (lambda tensor: -np.exp(tensor), lambda tensor: np.log(-tensor)),
    "decay column": (lambda tensor: -np.exp(tensor)[:, None], lambda tensor: np.log(-tensor[:, 0])),
    "sums": (lambda steps: steps + np.arange(len(steps)), lambda sums: sums - np.arange(len(sums))),
}
#: The names of tensors by architecture of llama.cpp, and these by the architectures of planted checkpoints.
TENSORS = read_table("gguf")
GGUF: dict[str, str] = TENSORS.pop("architectures")
METADATA: dict[str, dict[str, Any]] = TENSORS.pop("metadata")


def _stored(kind: str, layers: int) -> Iterator[tuple[str, str, Way]]:
    """The tensors of a checkpoint, a head as one layer more: their names in transformers and llama.cpp."""
    where = "backbone" if kind == "mamba2" else "model"
    of_layers = [f"{where}.layers.{i}." for i in range(layers)]
    for name, given in TENSORS[kind].items():
        way, stored = given if isinstance(given, list) else ("unchanged", given)
        if kind in HEADS or name.startswith(("model.", "backbone.", "lm_head.")):
            yield name, stored, WAYS[way]
            continue
        for i, layer in enumerate([*of_layers, "" if name.startswith("mtp.") else "mtp.layers.0."]):
            yield layer + name, f"blk.{i}.{stored}", WAYS[way]


def check_installed() -> None:
    """Raise ValueError unless the package gguf is there."""
    if find_spec("gguf") is None:
        raise ValueError(f"format: gguf needs the package gguf, which is not installed: {installing('gguf')}")


def write_gguf(path: Path, checkpoint: Checkpoint, spelling: Spelling) -> None:
    import gguf

    config, tensors = checkpoint.config, _stacked(checkpoint.tensors)
    kind, texts = GGUF.get(checkpoint.architecture, checkpoint.architecture), spelling.texts
    with atomic_write(path) as temporary:
        writer = gguf.GGUFWriter(temporary, kind)
        for name, value in _metadata(checkpoint, kind).items():
            if "." in name:  # gguf's writer has no method
                kinds: dict[type, Any] = {list: writer.add_array, bool: writer.add_bool}
                kinds.get(type(value), writer.add_uint32)(name, value)
            else:
                getattr(writer, f"add_{name}")(value)
        writer.add_name(path.stem)
        writer.add_token_list([byte_level(text) for text in texts])
        types = gguf.TokenType.NORMAL, gguf.TokenType.CONTROL
        writer.add_token_types([types[text == END] for text in texts])
        for name, eos in _special_ids(texts.index(END)).items():
            getattr(writer, f"add_{name}")(eos)
        for name, stored, (there, _) in _stored(kind, config["num_hidden_layers"]):
            if name in tensors:
                writer.add_tensor(stored, np.ascontiguousarray(there(tensors[name])))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()


def _metadata(checkpoint: Checkpoint, kind: str) -> dict[str, Any]:
    """What a file says of a checkpoint but its tokens, by the methods of gguf's writer without `add_`."""
    config, found = checkpoint.config, dict[str, Any](chat_template=CHAT_TEMPLATE)
    for part in ("all", kind, checkpoint.architecture):
        found |= METADATA.get(part, {})
    found = {name: config.get(x, x) if isinstance(x, str) else x for name, x in found.items()}
    called = {"temperature": "temp", "repetition_penalty": "penalty_repeat"}
    found |= {f"sampling_{called.get(name, name)}": value for name, value in checkpoint.defaults.items()}
    layers, heads = config["num_hidden_layers"], config["num_attention_heads"]
    if of_heads := config.get("mtp_num_hidden_layers", 0):
        found["nextn_predict_layers"] = of_heads
    short = config.get("layer_types", [""])[0] == "conv"  # without keys there
    return found | {"block_count": layers + of_heads, "head_count_kv": [0, heads] if short else heads}


def read_gguf(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What the forward pass needs of the configuration, and the tensors, as transformers has them."""
    import gguf

    reader = gguf.GGUFReader(path)
    kind = reader.get_field(gguf.Keys.General.ARCHITECTURE).contents()
    keys = {
        "head_dim": gguf.Keys.Attention.KEY_LENGTH,
        "rope_theta": gguf.Keys.Rope.FREQ_BASE,
        "rms_norm_eps": gguf.Keys.Attention.LAYERNORM_RMS_EPS,
    }
    config = {name: reader.get_field(key.format(arch=kind)).contents() for name, key in keys.items()}
    layers = reader.get_field(gguf.Keys.LLM.BLOCK_COUNT.format(arch=kind)).contents()
    if of_heads := reader.get_field(gguf.Keys.LLM.NEXTN_PREDICT_LAYERS.format(arch=kind)):
        layers -= of_heads.contents()
    config["num_hidden_layers"] = layers
    data = {tensor.name: tensor.data for tensor in reader.tensors}
    names = [one for one in _stored(kind, layers) if one[1] in data]
    return config, _apart({name: back(data[stored]) for name, stored, (_, back) in names})


def _stacked(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same with the matrices of all experts in one array."""
    found, of_experts = dict[str, Tensor](), dict[str, list[Tensor]]()
    for name, tensor in tensors.items():
        if ".experts." in name:
            before, _, after = name.partition(".experts.")
            of_experts.setdefault(f"{before}.experts.{after.partition('.')[2]}", []).append(tensor)
        else:
            found[name] = tensor
    return found | {name: np.stack(some) for name, some in of_experts.items()}


def _apart(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The inverse of `_stacked`."""
    found = dict[str, Tensor]()
    for name, tensor in tensors.items():
        before, of_experts, after = name.partition(".experts.")
        if of_experts:
            found |= {f"{before}.experts.{i}.{after}": one for i, one in enumerate(tensor)}
        else:
            found[name] = tensor
    return found


def interleaved(matrix: Tensor, parts: int = 2) -> Tensor:
    """The rows of a query or key matrix, one of each of the `parts` of a head in turn: of 2 parts, a plane's
    two rows become neighbours, and of `PLANES` they are apart again."""
    heads = matrix.reshape(-1, parts, HEAD_SIZE // parts, matrix.shape[1])
    return heads.swapaxes(1, 2).reshape(matrix.shape).copy()


WRITERS = {"hf": write_huggingface, "gguf": write_gguf}
READERS = {"hf": read_huggingface, "gguf": read_gguf}
