"""Models of `specsim.models` in the forms in which outsiders' loops call theirs.

A loop that knows only Hugging Face's models is given one of these: callable with `input_ids` [1, T], with an
answer that has `logits` float32 [1, T, V] and `past_key_values`. PyTorch is imported when they are called.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike

from experiments import Floats
from experiments.engines._origins import engines
from specsim.models import Model


def log_rows(model: Model | Shifted, held: Any, count: int) -> Any:
    """Log rows, float32 tensor [count, V], after each of the last `count` of the tokens `held`."""
    import torch

    return torch.from_numpy(engines.last_rows(cast(Model, model), np.asarray(held), count)).log().float()


class Stateless:
    """A model that is handed the whole text in every call."""

    def __init__(self, model: Model | Shifted):
        import torch

        self.model, self.device = model, torch.device("cpu")
        self.config = SimpleNamespace(vocab_size=model.vocab_size, max_position_embeddings=4096)

    def __call__(self, input_ids: Any, **_: Any) -> SimpleNamespace:
        """The rows after each of `input_ids`; no cache."""
        rows = log_rows(self.model, input_ids[0], input_ids.shape[1])
        return SimpleNamespace(logits=rows[None], past_key_values=None)


class TupleCached(Stateless):
    """A model with a cache of one layer, a tuple of keys and values [1, 1, T, 1], which are the tokens.

    It appends `input_ids` to what the cache holds: a loop that hands over tokens again, or crops the cache in
    the wrong place, changes the rows."""

    def __call__(self, input_ids: Any, past_key_values: Any = None, **_: Any) -> SimpleNamespace:
        """The rows after each of `input_ids`, given the cache before them, and the cache with them."""
        import torch

        keys = input_ids[:, None, :, None].double()
        if past_key_values is not None:
            keys = torch.cat((past_key_values[0][0], keys), dim=2)
        rows = log_rows(self.model, keys[0, 0, :, 0].numpy(), input_ids.shape[1])
        return SimpleNamespace(logits=rows[None], past_key_values=((keys, keys),))


class Shifted:
    """`model` with all ids raised by `by`; the lower ids have probability 0, or mean end-of-text.

    For loops that give some low ids a meaning of their own: `eos_id` is the id, below `by`, that takes the
    place of the model's token `eos`."""

    def __init__(self, model: Model, by: int, eos: int | None = None, eos_id: int = 0):
        self.model, self.by, self.eos, self.eos_id = model, by, eos, eos_id
        self.order, self.vocab_size = model.order, model.vocab_size + by
        self.reads_all = getattr(model, "reads_all", False)

    def up(self, token: int) -> int:
        """The id of the model's `token`."""
        return self.eos_id if token == self.eos else token + self.by

    def down(self, token: int) -> int:
        """The model's token with this id."""
        return self.eos if token == self.eos_id and self.eos is not None else token - self.by

    def rows(self, histories: ArrayLike, out: Floats | None = None) -> Floats:
        """The rows of the model after `histories` of ids, with the lower ids put before them."""
        ids = np.asarray(histories)
        known = ids - self.by
        if self.eos is not None:
            known = np.where(ids == self.eos_id, self.eos, known)
        rows = self.model.rows(known)
        raised = np.concatenate([np.zeros((*rows.shape[:-1], self.by)), rows], axis=-1)
        if self.eos is not None:
            raised[..., self.eos_id] = raised[..., self.eos + self.by]
            raised[..., self.eos + self.by] = 0.0
        if out is not None:
            out[...] = raised
        return raised


class NoProgress:
    """In the place of a loop's progress bar."""

    n = 0

    def __init__(self, *_: Any, **__: Any):
        """It shows nothing."""

    def __enter__(self) -> NoProgress:
        return self

    def __exit__(self, *_: object) -> None:
        """It has nothing to close."""

    def update(self, number: int = 1) -> None:
        """It counts nothing."""
