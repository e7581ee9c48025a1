"""Hugging Face transformers with drafts from layers of the target: early exit, multi-token prediction.

Both need a layer with another distribution than the target's. It is the target's layer, in which the MLP
takes each context of the table for the next one."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from specsim.engines._clients.running import need
from specsim.engines._clients.transformers import TransformersEngine
from specsim.engines._planted.law import TableLogits
from specsim.engines._planted.pair import MOST_ROWS

LAYER, SECOND = "model.layers.0.", "model.layers.1."
DOWN, MIX = "mlp.down_proj.weight", "self_attn.o_proj.weight"


class LayersEngine(TransformersEngine):
    """What both share."""

    def _next_contexts(self, down: Any) -> Any:
        """The matrix that writes contexts, each of them in place of the one before it."""
        law = self._planted.target.logits
        if not isinstance(law, TableLogits):
            raise ValueError(
                f"engine {self.name!r}: needs a distribution that is a table; plant a pair with at most "
                f"{MOST_ROWS} contexts"
            )
        contexts = law.table.size // law.words
        return self._torch.cat([down[:, 1:contexts], down[:, :1], down[:, contexts:]], dim=1)


class EarlyExitEngine(LayersEngine):
    """A target of two layers whose first one drafts, `assistant_early_exit`.

    The first layer takes each context for the next one, and the second puts that right."""

    name = "hf-early-exit"

    def _load(self, transformers: Any, which: str) -> Any:
        model = super()._load(transformers, which)
        tensors = model.state_dict()
        right, wrong = tensors[LAYER + DOWN], self._next_contexts(tensors[LAYER + DOWN])
        tensors |= {SECOND + name: one for name, one in _layer(tensors).items()}
        tensors |= {LAYER + DOWN: wrong, SECOND + DOWN: right - wrong}
        tensors[SECOND + MIX] = self._torch.zeros_like(tensors[SECOND + MIX])
        model.config.num_hidden_layers = 2
        deep = type(model)(model.config).to(right.dtype).eval()
        deep.load_state_dict(tensors)
        return deep

    def _how_to_draft(self, transformers: Any) -> dict[str, Any]:
        self._always_draft(self._model)
        return {"assistant_early_exit": 1}


class MtpEngine(LayersEngine):
    """The target with γ layers of multi-token prediction, `use_mtp`.

    Each is the target's layer on the embeddings alone, and takes each context for the next one."""

    name = "hf-mtp"

    def _how_to_draft(self, transformers: Any) -> dict[str, Any]:
        self._folder = TemporaryDirectory()  # the layers are read from a checkpoint, by each call
        file = Path(self._folder.name) / "model.safetensors"
        need("safetensors.torch", "safetensors").save_file(self._layers(), file)
        self._model.config.num_mtp_layers = self._gamma
        self._model.config.name_or_path = self._folder.name
        self._model._keys_to_ignore_on_load_unexpected = [r"^model\.layers\."]  # how they are found
        return {"use_mtp": True}

    def close(self) -> None:
        super().close()
        if self._gamma:
            self._folder.cleanup()

    def _layers(self) -> dict[str, Any]:
        torch, tensors = self._torch, self._model.state_dict()
        embedding = tensors["model.embed_tokens.weight"]
        size, like = embedding.shape[1], {"dtype": embedding.dtype}
        length = embedding[0].float().square().mean().sqrt().to(embedding.dtype)  # the norm divides by it
        layer = _layer(tensors) | {DOWN: self._next_contexts(tensors[LAYER + DOWN])}
        halves = torch.eye(size, **like) * length, torch.zeros(size, size, **like)  # embedding, hidden state
        layer["eh_proj.weight"] = torch.cat(halves, dim=1)
        for norm in ("enorm", "hnorm", "shared_head.norm"):
            layer[f"{norm}.weight"] = torch.ones(size, **like)
        return {
            f"model.layers.{depth}.{name}": one.clone()
            for depth in range(1, self._gamma + 1)
            for name, one in layer.items()
        }


def _layer(tensors: dict[str, Any]) -> dict[str, Any]:
    """The tensors of the first layer by their names in it."""
    return {name.removeprefix(LAYER): one for name, one in tensors.items() if name.startswith(LAYER)}
