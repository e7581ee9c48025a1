"""lucidrains/speculative-decoding: a whole decoding loop in PyTorch, on the index as `speculative-decoding`.

`speculative_decoding/speculative_decoding.py`, read at 0.2.0:

    speculative_decoding(net, small_net, prompt[B, L], seq_len, gamma=5, temperature=1., filter_thres=0.9, lenience=1.,
                         pad_id=0) -> (tokens[B, seq_len - L], mean accepted)

    net(tokens, seq_start_pos=…, cache=…, return_cache=True) -> (logits of the tokens that were not cached, cache)

The adapter decodes one sequence with every token kept (`filter_thres=0`), and cuts at `eos`, which the loop does not
know. Known oddities: accepts unless u > p/q; divides the residual by its sum without a guard; with `lenience` the
residual does not use the scaled q.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from specsim.auditing._verifier.contract import Verifier, declares
from specsim.auditing.adapters._cached import last_rows
from specsim.auditing.adapters._engines import engine_function, seeded_torch, until_eos
from specsim.models import Model


def decoder() -> Verifier:
    """The package's own loop. Raises EngineMissing without it."""
    return adapt(
        engine_function("speculative_decoding:speculative_decoding", "pip install torch speculative-decoding")
    )


def adapt(speculative_decoding: Callable[..., Any]) -> Verifier:
    """The decoder made of any function with the signature of `speculative_decoding`."""

    @declares(decoder=True)
    def decode(
        target: Model,
        draft: Model,
        prompt: Sequence[int],
        max_new_tokens: int,
        eos: int | None,
        rng: np.random.Generator,
    ) -> list[int]:
        import torch

        with seeded_torch(rng):
            tokens, _ = speculative_decoding(
                _network(target),
                _network(draft),
                torch.tensor([list(prompt)]),
                len(prompt) + max_new_tokens,
                filter_thres=0.0,
            )
        return until_eos(tokens[0].tolist(), eos)

    return decode


def _network(model: Model) -> Callable[..., Any]:
    """`model` as the loop calls it; the cache holds the tokens, float64 [1, 1, T, 1]."""
    import torch

    def forward(tokens: Any, cache: Any = None, **_: Any) -> Any:
        held = torch.empty((1, 1, 0, 1), dtype=torch.float64) if cache is None else cache[0]
        new = tokens[:, held.shape[-2] :]
        held = torch.cat((held, new[:, None, :, None].double()), dim=-2)
        rows = last_rows(model, held[0, 0, :, 0].numpy(), new.shape[1])
        return torch.from_numpy(rows).log().float()[None], (held, None)

    return forward
