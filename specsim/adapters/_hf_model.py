"""A transformers model with the rows of a `specsim.models.Model` after what its KV cache holds."""

from typing import Any

import torch
from transformers import DynamicCache, GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast

from specsim.adapters._engines import last_rows
from specsim.models import Model


class TableConfig(PretrainedConfig):
    """One layer, one head, a head of one number: the token."""

    model_type = "specsim-table"

    def __init__(self, vocab_size: int = 2, **settings: Any):
        self.vocab_size = vocab_size
        self.hidden_size = self.num_hidden_layers = self.num_attention_heads = self.head_dim = 1
        super().__init__(**settings)


class TableTransformer(PreTrainedModel, GenerationMixin):
    """`model` as a causal language model with log rows as logits; prompts have at least `order` tokens."""

    config_class = TableConfig

    def __init__(self, model: Model):
        super().__init__(TableConfig(model.vocab_size))
        self.model = model
        self.nothing = torch.nn.Parameter(torch.zeros(()), requires_grad=False)  # has device and dtype
        self.post_init()

    def forward(
        self, input_ids: torch.Tensor, past_key_values: DynamicCache | None = None, **_: Any
    ) -> CausalLMOutputWithPast:
        """Logits float32 [1, T, V] after each of `input_ids` [1, T], given the cache before them."""
        cache = DynamicCache() if past_key_values is None else past_key_values
        tokens = input_ids[:, None, :, None].double()
        keys, _ = cache.update(tokens, tokens, 0)
        rows = last_rows(self.model, keys[0, 0, :, 0].numpy(), input_ids.shape[1])
        logits = torch.from_numpy(rows).log().float()[None]
        return CausalLMOutputWithPast(logits=logits, past_key_values=cache)
