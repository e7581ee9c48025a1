"""The forward pass of a one-layer Llama in float64, written from its definition.

It reads the tensors of a checkpoint and nothing of the law, so that the two can be compared.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specsim.core._types import Floats, Ints
from specsim.engines._planted.law import log_softmax

#: Columns of the vocabulary whose logits are computed at a time.
BLOCK = 8192


def log_probabilities(
    config: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]], text: Ints, places: Ints
) -> Floats:
    """log p [n, V] of the token at each of `places` of a text [T], given what comes before it."""
    layer = "model.layers.0"
    stream = tensors["model.embed_tokens.weight"][text].astype(np.float64)

    def project(name: str, values: Floats) -> Floats:
        found: Floats = values @ tensors[f"{name}.weight"].T.astype(np.float64)
        return found

    def norm(name: str, values: Floats) -> Floats:
        square = (values**2).mean(axis=1, keepdims=True) + config["rms_norm_eps"]
        found: Floats = values / np.sqrt(square) * tensors[f"{name}.weight"]
        return found

    normed = norm(f"{layer}.input_layernorm", stream)
    queries, keys, values = (project(f"{layer}.self_attn.{name}_proj", normed) for name in "qkv")
    mixed = _attend(config, queries, keys, values)
    stream = stream + project(f"{layer}.self_attn.o_proj", mixed)
    normed = norm(f"{layer}.post_attention_layernorm", stream)
    gate, up = (project(f"{layer}.mlp.{name}_proj", normed) for name in ("gate", "up"))
    stream = stream + project(f"{layer}.mlp.down_proj", gate * (1 + np.tanh(gate / 2)) / 2 * up)
    last = norm("model.norm", stream)[places - 1]
    head = tensors["lm_head.weight"]
    blocks = [last @ head[i : i + BLOCK].T.astype(np.float64) for i in range(0, len(head), BLOCK)]
    return log_softmax(np.concatenate(blocks, axis=1))


def _attend(config: Mapping[str, Any], queries: Floats, keys: Floats, values: Floats) -> Floats:
    """Causal attention, head by head."""
    size = config["head_dim"]
    future = np.triu(np.ones((len(queries), len(queries)), dtype=bool), 1)
    mixed = np.empty_like(values)
    for start in range(0, values.shape[1], size):
        head = slice(start, start + size)
        query, key = (_rotated(matrix[:, head], config["rope_theta"]) for matrix in (queries, keys))
        scores = np.where(future, -np.inf, query @ key.T / np.sqrt(size))
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        mixed[:, head] = weights / weights.sum(axis=1, keepdims=True) @ values[:, head]
    return mixed


def _rotated(vectors: Floats, theta: float) -> Floats:
    """Rotary position embedding: dimensions i and i + d/2 are turned by position · θ^(-2i/d)."""
    half = vectors.shape[1] // 2
    angles = np.arange(len(vectors))[:, None] * theta ** (-np.arange(half) / half)
    cos, sin, x, y = np.cos(angles), np.sin(angles), vectors[:, :half], vectors[:, half:]
    return np.concatenate([x * cos - y * sin, y * cos + x * sin], axis=1)
