"""Checkpoints of each architecture: their tensors, and their configuration in transformers.

All have the residual stream of `weights.py`. They differ in what copies the codes of other tokens into their
slots: attention heads, or a state that is carried from token to token."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, product
from typing import Any

import numpy as np

from specsim.core._files import read_table
from specsim.engines._planted import weights
from specsim.engines._planted.law import MOST_SLOTS, Law, sign_codes
from specsim.engines._planted.weights import GATE, HEAD_SIZE, THETA, Layout, Tensor, look_back, zeros

#: The numbers and names of configurations that are the same for all distributions.
CONFIGS = read_table("architectures")
#: Heads that read hidden states, with the architectures that may have one, and a format, without which there
#: is no GGUF; see `Law.contexts_of_head`.
HEADS: dict[str, dict[str, str]] = CONFIGS.pop("heads")
#: So small that it changes no mean square of float32.
EPSILON = 1e-20
#: Names of an MLP's matrices.
PROJECTED = {"gate": "gate_proj", "up": "up_proj", "down": "down_proj"}
NUMBERED = {"gate": "w1", "down": "w2", "up": "w3"}
#: Taps of the convolution before a state, the newest token last.
TAPS = 4
#: Taps of a short convolution.
CONVOLVED = 3
#: The experts; the newest token chooses one of them.
EXPERTS = 4
#: Parameters that are no weights of a module.
BARE = ("A_log", "dt_bias", "D", "bias")
#: The layers whose inputs a head reads that has a checkpoint of its own.
TARGET_LAYERS = [0, 1, 1]
#: So large that the smallest difference of logits is more than their range.
DECIDING = 512
#: The input of a softplus that is 0: a state does not decay.
CLOSED = -64.0


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """Tensors and a configuration, by their names in transformers."""

    architecture: str
    config: dict[str, Any]
    tensors: dict[str, Tensor]
    defaults: dict[str, float] = field(default_factory=dict)  #: of sampling


@dataclass(frozen=True)
class Architecture:
    """How a checkpoint is made, and what its distribution may read.

    `build(layout, context)` gives the tensors but those of all, the number of attention heads, and the
    configuration but that of all. The offsets that may be read have at most `reach`, if there is one."""

    build: Callable[[Layout, int], "Built"]
    memory: str = ""
    experts: int = 0
    reach: int | None = None


Built = tuple[dict[str, Tensor], int, dict[str, Any]]


def build(law: Law, context: int, architecture: str = "llama", head: str | None = None) -> Checkpoint:
    """The weights for a distribution, in texts of up to `context` positions, with a `head` in them or not."""
    layout = Layout(law)
    tensors, heads, config = ARCHITECTURES[architecture].build(layout, context)
    if head == "mtp":
        llama = architecture == "llama"
        tensors |= _llamas_head(layout) if llama else _multi_token_head(layout, tensors)
        config |= CONFIGS["mimo"] if llama else {"mtp_num_hidden_layers": 1}
    elif head == "eagle3" and architecture == "llama":
        tensors, config = _in_three_layers(tensors), config | {"num_hidden_layers": 3}
    embedded = "backbone.embeddings" if architecture == "mamba2" else "model.embed_tokens"
    shared = {f"{embedded}.weight": layout.embedding(), "lm_head.weight": layout.output()}
    shared |= {n if n.rpartition(".")[2] in BARE else f"{n}.weight": one for n, one in tensors.items()}
    return Checkpoint(architecture, _config(layout, context, architecture, heads) | config, shared)


def _config(layout: Layout, context: int, made_as: str, heads: int) -> dict[str, Any]:
    sizes = {
        "vocab_size": layout.law.vocab_size,
        "hidden_size": layout.hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "head_dim": HEAD_SIZE,
        "max_position_embeddings": context,
        "rms_norm_eps": EPSILON,
        "rope_theta": THETA,
        "rope_parameters": {"rope_type": "default", "rope_theta": THETA},
    }
    return CONFIGS["shared"] | sizes | CONFIGS[made_as]


def _mlp(where: str, made: dict[str, Tensor], names: dict[str, str] = PROJECTED) -> dict[str, Tensor]:
    """The matrices of an MLP by their names in the module `where`."""
    return {f"{where}.{names[name]}": matrix for name, matrix in made.items()}


def _attention(layer: str, made: dict[str, Tensor]) -> dict[str, Tensor]:
    """The matrices of attention by their names in a layer."""
    return {f"{layer}.self_attn.{name}_proj": matrix for name, matrix in made.items()}


def _one_layer(layout: Layout, context: int, window: int = 0) -> tuple[dict[str, Tensor], int]:
    """A layer of attention without its MLP."""
    made = layout.attention(layout.heads(context, window=window), layout.hidden)
    norms = "layers.0.input_layernorm", "layers.0.post_attention_layernorm", "norm"
    ones = {f"model.{norm}": zeros(layout.hidden) + 1 for norm in norms}
    return _attention("model.layers.0", made) | ones, layout.hidden // HEAD_SIZE


def _llama(layout: Layout, context: int, window: bool = False) -> Built:
    """With a `window` the last token that is read is the oldest in it."""
    order = layout.law.order if window else 0
    tensors, heads = _one_layer(layout, context, order)
    mlp, config = layout.gates(), {"sliding_window": order} if window else {}
    return tensors | _mlp("model.layers.0.mlp", mlp), heads, config | {"intermediate_size": len(mlp["gate"])}


def _in_three_layers(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The attention of a layer, its gates, and nothing, for a head that reads what is between them."""
    found = dict[str, Tensor]()
    for name, tensor in tensors.items():
        for layer, part in enumerate((".self_attn.", ".mlp.", "norm")):
            found[name.replace("layers.0", f"layers.{layer}")] = tensor * (part in name or "norm" in name)
    return found


def _experts(layout: Layout, context: int) -> Built:
    """The router opens the expert of the lowest digits of the newest token."""
    tensors, heads = _one_layer(layout, context)
    number = layout.law.experts
    made = [layout.gates(expert) for expert in range(number)]
    for expert, mlp in enumerate(made):
        tensors |= _mlp(f"model.layers.0.block_sparse_moe.experts.{expert}", mlp, NUMBERED)
    router, signs = zeros(number, layout.hidden), sign_codes(np.arange(number), (number - 1).bit_length())
    read = min(layout.bits, signs.shape[1])
    router[:, layout.code.start + np.arange(read)] = GATE * signs[:, :read] / layout.scale
    router[:, layout.one] = -GATE * signs[:, read:].sum(axis=1) / layout.scale  # digits that no word has
    tensors["model.layers.0.block_sparse_moe.gate"] = router
    sizes = {"intermediate_size": len(made[0]["gate"]), "num_local_experts": number}
    return tensors, heads, sizes | {"sliding_window": None}


def _short_conv(layout: Layout, context: int) -> Built:
    """A layer with a convolution over the last tokens, and one with attention for those further back."""
    heads = layout.heads(context, near=CONVOLVED)
    bits, one, scale = layout.bits, layout.one, layout.scale
    projected, taps = zeros(3, layout.hidden, layout.hidden), zeros(layout.hidden, 1, CONVOLVED)
    out = zeros(layout.hidden, layout.hidden)
    for slot, offset in enumerate(offset for offset in layout.law.offsets if 1 < offset <= CONVOLVED):
        channels = slot * (bits + 1) + np.arange(bits + 1)  # the digits, and a 1 that clears the holder
        projected[:2, channels, one] = 1 / scale
        projected[2, channels[:bits], layout.code] = np.eye(bits) / scale
        projected[2, channels[bits], one] = 1 / scale
        taps[channels, 0, -offset] = 1
        out[layout.slots[slot], channels[:bits]] = np.eye(bits)
        out[layout.holders[slot], channels[bits]] = -1
    made, mlp = layout.attention(heads, layout.hidden), layout.gates()
    tensors = {
        "model.layers.0.conv.in_proj": projected.reshape(-1, layout.hidden),
        "model.layers.0.conv.conv": taps,
        "model.layers.0.conv.out_proj": out,
        "model.layers.1.self_attn.q_layernorm": zeros(HEAD_SIZE) + _sharpness(heads),
        "model.layers.1.self_attn.k_layernorm": zeros(HEAD_SIZE) + 1,
        "model.layers.1.self_attn.out_proj": made.pop("o"),
        "model.embedding_norm": zeros(layout.hidden) + 1,
    }
    tensors |= _attention("model.layers.1", made)
    for layer in (0, 1):
        of_layer = {name: matrix * layer for name, matrix in mlp.items()}
        tensors |= _mlp(f"model.layers.{layer}.feed_forward", of_layer, NUMBERED)
        for norm in ("operator_norm", "ffn_norm"):
            tensors[f"model.layers.{layer}.{norm}"] = zeros(layout.hidden) + 1
    sizes = {"intermediate_size": len(mlp["gate"]), "conv_L_cache": CONVOLVED, "norm_eps": EPSILON}
    return tensors, layout.hidden // HEAD_SIZE, sizes


def _gated_delta(layout: Layout, context: int) -> Built:
    """A layer with a state, and one with attention.

    The state has a value for each key, and a token overwrites that of the token before it. Keys and queries
    are units: silu makes an AND gate of a token's digits. Values are two units for each digit. One of
    them is open, so that the norm does not depend on the token."""
    heads = layout.heads(context)
    n = max(1, len(heads))
    tensors = {f"model.layers.0.linear_attn.{name}": tensor for name, tensor in _state(layout).items()}
    made = layout.attention(heads, n * HEAD_SIZE)
    query = made["q"].reshape(n, HEAD_SIZE, -1)
    made["q"] = np.concatenate([query, np.zeros_like(query)], axis=1).reshape(2 * n * HEAD_SIZE, -1)
    made["o"] *= 2  # the sigmoid of a gate without weights is a half
    tensors |= _attention("model.layers.1", made)
    tensors["model.layers.1.self_attn.q_norm"] = zeros(HEAD_SIZE) + _sharpness(heads) - 1
    tensors["model.layers.1.self_attn.k_norm"] = zeros(HEAD_SIZE)
    mlp = layout.gates()
    tensors |= _mlp("model.layers.0.mlp", {name: np.zeros_like(matrix) for name, matrix in mlp.items()})
    tensors |= _mlp("model.layers.1.mlp", mlp)
    norms = [f"layers.{i}.{name}_layernorm" for i in (0, 1) for name in ("input", "post_attention")]
    # these norms multiply by one more
    tensors |= {f"model.{norm}": zeros(layout.hidden) for norm in (*norms, "norm")}
    config = {
        "intermediate_size": len(mlp["gate"]),
        "linear_conv_kernel_dim": TAPS,
        "linear_key_head_dim": MOST_SLOTS,
        "linear_value_head_dim": MOST_SLOTS,
        "rope_parameters": {"rope_type": "default", "rope_theta": THETA, "partial_rotary_factor": 1.0},
    }
    return tensors, n, config


def _state(layout: Layout) -> dict[str, Tensor]:
    """A GatedDeltaNet whose state is that of the distribution. Its size is a power of 4, so that a fourth can
    be open units of a value."""
    memory = layout.law.memory
    assert memory is not None
    size, bits, one, scale = MOST_SLOTS, layout.bits, layout.one, layout.scale
    digits, slots = np.arange(min(bits, (memory.slots - 1).bit_length())), np.arange(memory.slots)
    code = layout.code.start + digits
    gate, value, always = zeros(3, size, layout.hidden)  # the first opens for the words of a slot
    gate[slots[:, None], code] = GATE * sign_codes(slots, len(digits)) / scale
    gate[slots, one] = GATE * (1 - len(digits)) / scale
    if layout.law.openers:
        gate[slots, layout.mark] = -GATE / scale
        gate[slots, one] -= GATE / scale
    value[:bits, layout.code] = GATE * np.eye(bits) / scale
    value[bits : 2 * bits, layout.code] = -GATE * np.eye(bits) / scale
    value[np.arange(2 * bits, bits + size // 4), one] = GATE / scale
    always[:, one] = GATE / scale
    taps = zeros(3 * size, 1, TAPS)
    taps[:size, 0, -1] = taps[2 * size :, 0, -1] = taps[size : 2 * size, 0, -2] = 1
    beta = zeros(1, layout.hidden)
    beta[0, one] = GATE / scale
    written = zeros(layout.hidden, size)
    unit = 1 / (2 * GATE)  # of a value after its norm and its gate
    slot, holder = layout.of_memory
    written[slot, :bits], written[slot, bits : 2 * bits] = unit * np.eye(bits), -unit * np.eye(bits)
    written[holder, :bits] = written[holder, bits : 2 * bits] = -unit * np.eye(bits)
    return {
        "in_proj_qkv": np.concatenate([gate, gate, value]),
        "in_proj_z": always,
        "in_proj_b": beta,
        "in_proj_a": zeros(1, layout.hidden),
        "conv1d": taps,
        "A_log": zeros(1),
        "dt_bias": zeros(1) + CLOSED,
        "norm": zeros(size) + 1,
        "out_proj": written,
    }


def _multi_token_head(layout: Layout, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """One more of the last layer, on what is read of the newest token and of the hidden state before it."""
    last = "model.layers.1."
    head = {f"mtp.layers.0.{n.removeprefix(last)}": one for n, one in tensors.items() if n.startswith(last)}
    for norm in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"):
        head[f"mtp.{norm}"] = zeros(layout.hidden)  # these norms multiply by one more
    return head | {"mtp.fc": np.concatenate(layout.joined(), axis=1) / np.float32(layout.scale)}


def _llamas_head(layout: Layout) -> dict[str, Tensor]:
    """What is read of the newest token and of the hidden state before it, and gates, without attention."""
    width, where = layout.hidden, "model.mtp_layers.0"
    tensors: dict[str, Any] = _attention(where, dict.fromkeys("qkvo", zeros(width, width)))
    tensors |= _mlp(f"{where}.mlp", layout.gates())
    for layer, name in product(("model.layers.0", where), "qkv"):
        tensors[f"{layer}.self_attn.{name}_proj.bias"] = zeros(width)
    for norm in ("token", "hidden", "input", "post_attention", "final"):
        tensors[f"{where}.{norm}_layernorm"] = zeros(width) + 1
    token, hidden = layout.joined()
    tensors[f"{where}.input_proj"] = np.concatenate([hidden, token], axis=1) / np.float32(layout.scale)
    return tensors


def build_eagle(law: Law, context: int) -> Checkpoint:
    """A head in a checkpoint of its own: one layer, which begins from the newest token and the hidden state
    of the token before, that of the target after its last norm.

    No norm is before attention or behind the layer. So attention, which looks at the position itself,
    multiplies by what the target's norm does, and the gates write as much."""
    layout = Layout(law)
    width, number = layout.hidden, layout.hidden // HEAD_SIZE
    look, (token, hidden) = look_back(0, context), layout.joined()
    query, key, eye = zeros(width, width), zeros(width, width), np.eye(width, dtype=np.float32)
    query[:, layout.one], key[:, layout.one] = np.tile(look.query, number), np.tile(look.key, number)
    made = {"q": query, "k": key, "v": eye * np.float32(layout.scale - 1), "o": eye}
    mlp = layout.gates()
    mlp["down"] *= np.float32(layout.scale)
    tensors = _attention("layers.0", made) | _mlp("layers.0.mlp", mlp)
    tensors["layers.0.post_attention_layernorm"] = zeros(width) + 1
    tensors["fc"] = np.concatenate([token, hidden / np.float32(layout.scale)], axis=1)
    config = _config(layout, context, "eagle", number) | {"intermediate_size": len(mlp["gate"])}
    return Checkpoint("eagle", config, {f"{name}.weight": tensor for name, tensor in tensors.items()})


def build_eagle3(law: Law, context: int) -> Checkpoint:
    """A head in a checkpoint of its own: one layer, which begins from three hidden states of the target, and
    for later drafts from its own.

    The digits of a code come from the three in turn, those of slots only from behind the first layer.
    Attention looks at the position itself. It replaces the hidden state by what is read of it and of the
    newest token's embedding, and the gates of the target follow."""
    layout = Layout(law)
    width, one, number = layout.hidden, layout.one, layout.hidden // HEAD_SIZE
    fused, look = zeros(3, width, width), look_back(0, context)
    source = np.full(width, 2)
    source[layout.code] = np.arange(layout.bits) % 3
    for part in chain(layout.slots, layout.holders):
        source[part] = 1 + np.arange(layout.bits) % 2
    fused[source, np.arange(width), np.arange(width)] = 1
    query, key = zeros(2, width, 2 * width)
    query[:, one], key[:, one] = (np.tile(x, number) / layout.scale for x in (look.query, look.key))
    token, hidden = layout.joined()
    value = np.concatenate([token, hidden - np.eye(width, dtype=np.float32)], axis=1)
    made = {"q": query, "k": key, "v": value / np.float32(layout.scale), "o": np.eye(width, dtype=np.float32)}
    mlp = layout.gates()
    tensors = _attention("midlayer", made) | _mlp("midlayer.mlp", mlp)
    norms = [f"midlayer.{name}" for name in ("input_layernorm", "hidden_norm", "post_attention_layernorm")]
    tensors |= {norm: zeros(width) + 1 for norm in (*norms, "norm")}
    tensors |= {"fc": np.concatenate([*fused], axis=1), "lm_head": layout.output()[: law.words][::-1]}
    named: dict[str, Any] = {f"{name}.weight": tensor for name, tensor in tensors.items()}
    named["d2t"] = law.words - 1 - 2 * np.arange(law.words)  # the vocabulary of drafts, backwards
    read = {"eagle_aux_hidden_state_layer_ids": TARGET_LAYERS if law.memory else [0, 1, 2]}
    sizes = {"draft_vocab_size": law.words, "target_hidden_size": width, **read}
    config = _config(layout, context, "eagle3", number) | sizes | {"intermediate_size": len(mlp["gate"])}
    return Checkpoint("eagle3", config, named)


def build_dflash(law: Law, context: int, markov: bool = False) -> Checkpoint:
    """A head in a checkpoint of its own, which drafts a block at once: the newest token, and masks.

    A mask looks at the newest token, by its content, and two positions back. There the first mask finds
    a hidden state of the target, and takes the word that the state remembered; the others find none. With
    a head of DSpark (`markov`) their logits are those after the draft before; a word's are so large that they
    decide against these."""
    layout = Layout(law)
    width, bits, one, scale = layout.hidden, layout.bits, layout.one, layout.scale
    holds, (slot, holder) = layout.context_holder, layout.of_memory
    # masks and hidden states have units of contexts for the code and the holder that only tokens have
    moved = np.arange(layout.contexts.start, layout.contexts.start + bits + 1)
    embedding, fused = layout.embedding(), zeros(3, width, width)
    embedding[law.words, layout.code], embedding[law.words, holds] = 0, 0
    embedding[law.words, moved] = 1
    fused[0, moved, np.r_[layout.code, holds]] = 1
    fused[1, layout.constants, layout.constants] = np.eye(layout.constants.stop - layout.constants.start)
    for part in layout.of_memory:  # the digits come from two of the three in turn
        digits = np.arange(part.start, part.stop)
        fused[1 + np.arange(bits) % 2, digits, digits] = 1
    looks = {0: weights.look_at_opener(context), 1: look_back(2, context)}
    query, key, value = zeros(3, 2 * HEAD_SIZE, width)
    for number, read in enumerate((holds.start, one)):
        rows = slice(number * HEAD_SIZE, (number + 1) * HEAD_SIZE)
        query[rows, one], key[rows, read] = looks[number].query / scale, looks[number].key / scale
    out, digits = zeros(width, 2 * HEAD_SIZE), np.arange(bits)
    of_state, of_holder = HEAD_SIZE + digits, HEAD_SIZE + bits + digits
    value[digits, layout.code] = value[of_state, slot] = value[of_holder, holder] = np.eye(bits) / scale
    value[bits, holds], value[of_holder, one] = 1 / scale, -1 / scale
    out[layout.code, digits] = out[slot, of_state] = out[holder, of_holder] = np.eye(bits)
    out[moved, bits], out[holds, bits] = -1, 1
    mlp = layout.gates()
    tensors = _attention("layers.0", {"q": query, "k": key, "v": value, "o": out}) | _mlp("layers.0.mlp", mlp)
    norms = ("layers.0.input_layernorm", "layers.0.post_attention_layernorm", "hidden_norm", "norm")
    tensors |= {norm: zeros(width) + 1 for norm in norms}
    tensors |= {"layers.0.self_attn.q_norm": zeros(HEAD_SIZE) + _sharpness(looks)}
    tensors |= {"layers.0.self_attn.k_norm": zeros(HEAD_SIZE) + 1, "fc": np.concatenate([*fused], axis=1)}
    tensors |= {"embed_tokens": embedding, "lm_head": layout.output()}
    if markov:
        table = tensors["lm_head"][:, layout.contexts].reshape(law.vocab_size, law.words, law.words + 1)
        tensors["markov_w1"] = np.eye(law.vocab_size, weights.UNIT, dtype=np.float32)
        tensors["markov_w2"] = zeros(law.vocab_size, weights.UNIT)
        tensors["markov_w2"][:, : law.words] = table[..., -1] * layout.scale
        table *= np.where(np.arange(law.words + 1) < law.words, DECIDING, 0)
        tensors["lm_head"][:, layout.contexts] = table.reshape(law.vocab_size, -1)
    sizes: dict[str, Any] = {"block_size": 17, "target_layers": TARGET_LAYERS, "mask_token_id": law.words}
    sizes["sample_from_anchor"] = False
    config = _config(layout, context, "dflash", 2) | sizes | {"intermediate_size": len(mlp["gate"])}
    return Checkpoint("dflash", config, {f"{name}.weight": tensor for name, tensor in tensors.items()})


def _mamba2(layout: Layout, context: int) -> Built:
    """A layer whose state keeps the last token that it may, and one whose units are the gates.

    The step size of a token that is kept is so large that the state forgets all else, and that of others is
    0. A norm follows, so as many units are open for each token that its factor is a power of two."""
    layout.heads(context)  # the context must be long enough
    inner, size = 2 * layout.hidden, 16
    bits, one, scale = layout.bits, layout.one, layout.scale
    slot, holder = layout.of_memory
    tensors: dict[str, Tensor] = {"backbone.norm_f": zeros(layout.hidden) + 1}
    for layer in (0, 1):
        units, out = zeros(inner, layout.hidden), zeros(layout.hidden, inner)
        if layer == 0:
            units[:bits, layout.code] = GATE / 2 * np.eye(bits) / scale
            units[bits : 2 * bits, layout.code] = -GATE / 2 * np.eye(bits) / scale
            own, used = bits, 2 * bits
            out[slot, :bits], out[slot, bits:used] = np.eye(bits), -np.eye(bits)
            out[holder, :bits] = out[holder, bits:used] = -np.eye(bits)
        else:
            mlp = layout.gates()
            own, used = 1, layout.contexts.stop - layout.contexts.start
            units[:used], out[:, :used] = mlp["gate"][:used] / 2, mlp["down"][:, :used]
        power = max(j for j in range(5) if inner % 4**j == 0 and inner // 4**j >= own)
        units[used : used + inner // 4**power - own, one] = GATE / 2 / scale
        gate, between = zeros(inner, layout.hidden), zeros(2 * size, layout.hidden)
        gate[:, one], between[[0, size], one] = 1 / scale, 4 / scale
        step = zeros(1, layout.hidden)
        if layer == 0:  # large for even numbers of words
            step[0, layout.code.start] = step[0, layout.mark] = -GATE / scale
            step[0, one] -= GATE / scale * bool(layout.law.openers)
        else:
            step[0, one] = -GATE / scale
        name = f"backbone.layers.{layer}."
        tensors |= {
            f"{name}norm": zeros(layout.hidden) + 1,
            f"{name}mixer.in_proj": np.concatenate([gate, units, between, step]),
            f"{name}mixer.conv1d": zeros(inner + 2 * size, 1, TAPS) + np.eye(TAPS, dtype=np.float32)[-1],
            f"{name}mixer.conv1d.bias": zeros(inner + 2 * size),
            f"{name}mixer.A_log": zeros(1),
            f"{name}mixer.D": zeros(1) + layer,
            f"{name}mixer.dt_bias": zeros(1),
            f"{name}mixer.norm": zeros(inner) + 1,
            f"{name}mixer.out_proj": out / np.float32(2**power),
        }
    sizes = {"head_dim": inner, "state_size": size, "conv_kernel": TAPS, "layer_norm_epsilon": EPSILON}
    return tensors, 1, sizes


def _sharpness(heads: dict[int, Any]) -> float:
    """What queries are multiplied by after their norm, so that each head has at least its amplitude."""
    planes = [float((head.key > 0).sum()) for head in heads.values()]
    amplitudes = [float(np.hypot(*head.query.reshape(2, -1)).max()) / 8 for head in heads.values()]
    needed = [a * n / 8 for a, n in zip(amplitudes, planes, strict=True)]
    return float(2 ** np.ceil(np.log2(max(needed, default=1.0))))


ARCHITECTURES = {
    "llama": Architecture(_llama),
    "sliding-window": Architecture(partial(_llama, window=True)),
    "moe": Architecture(_experts, experts=EXPERTS),
    "short-conv": Architecture(_short_conv),
    "gated-delta": Architecture(_gated_delta, memory="recall", reach=1),
    "mamba2": Architecture(_mamba2, memory="latch", reach=1),
    "hybrid": Architecture(_gated_delta, memory="recall"),
}
#: What makes the checkpoint of a head that has one of its own.
OWN: dict[str, Callable[[Law, int], Checkpoint]] = {
    "eagle": build_eagle,
    "eagle3": build_eagle3,
    "dflash": build_dflash,
    "dspark": partial(build_dflash, markov=True),
}
#: Those whose layers carry a state from token to token.
STATEFUL = ("short-conv", "gated-delta", "mamba2", "hybrid")
