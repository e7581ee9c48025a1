"""Hugging Face transformers with a draft that has a tokenizer of its own: universal speculative decoding."""

import json
from typing import Any

from specsim.engines._clients.running import need
from specsim.engines._clients.transformers import TransformersEngine

#: The draft's first token, which the target's vocabulary lacks.
UNKNOWN = "<|unknown|>"


class UniversalEngine(TransformersEngine):
    """The target with the draft as `assistant_model` and with `assistant_tokenizer`.

    The draft numbers the tokens backwards, after a special one that the target does not have."""

    name = "hf-universal"

    def _how_to_draft(self, transformers: Any) -> dict[str, Any]:
        drafting = super()._how_to_draft(transformers)
        self._renumber(drafting["assistant_model"])
        return drafting | {
            "tokenizer": self._tokenizer,
            "assistant_tokenizer": self._renumbered_tokenizer(transformers),
        }

    def _renumber(self, draft: Any) -> None:
        """Turn the order of the tokens around; the new one, number 0, behaves as end-of-text."""
        with self._torch.no_grad():
            ends = draft.get_input_embeddings, draft.get_output_embeddings
            before = [end().weight.clone() for end in ends]
            draft.resize_token_embeddings(len(before[0]) + 1, mean_resizing=False)
            for end, rows in zip(ends, before, strict=True):
                eos = rows[self._planted.eos : self._planted.eos + 1]
                end().weight.copy_(self._torch.cat([rows, eos]).flip(0))

    def _renumbered_tokenizer(self, transformers: Any) -> Any:
        folder = self._planted.checkpoint("draft", "hf")
        content = json.loads((folder / "tokenizer.json").read_bytes())
        (end,) = content["added_tokens"]
        vocabulary = content["model"]["vocab"]
        size = len(vocabulary)
        content["model"]["vocab"] = {UNKNOWN: 0} | {text: size - i for text, i in vocabulary.items()}
        content["added_tokens"] = [end | {"id": 0, "content": UNKNOWN}, end | {"id": size - end["id"]}]
        backend = need("tokenizers", "transformers").Tokenizer.from_str(json.dumps(content))
        return transformers.PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=end["content"])
