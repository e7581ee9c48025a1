"""MLX-LM: speculative decoding on Apple silicon; `mlx[cpu]` runs it elsewhere.

docs/engines/kernels.md has its signature. The adapter samples both models at temperature 1, and stops at
`eos`, which the loop leaves to its caller. MLX's global generator is seeded, and not restored."""

from functools import partial
from typing import Any

import numpy as np

from specsim.adapters import _engines as engines
from specsim.adapters._contract import Verifier
from specsim.models import Model


def adapt(speculative_generate_step: engines.Function) -> Verifier:

    @engines.decoder_for()
    def decode(request: engines.Request) -> list[int]:
        import mlx.core as mx

        mx.random.seed(engines.seed_of(request.rng))
        steps = speculative_generate_step(
            mx.array(list(request.prompt)),
            _Network(request.target),
            _Network(request.draft),
            max_tokens=request.max_new_tokens,
            sampler=partial(mx.random.categorical, axis=-1),
        )
        return engines.until_eos((int(token) for token, _, _ in steps), request.eos)

    return decode


decoder = engines.installed(
    adapt, "mlx_lm.generate:speculative_generate_step", install="pip install 'mlx[cpu]' mlx-lm"
)


class _Network:
    """`model` with one layer, whose keys are the tokens."""

    layers = (None,)

    def __init__(self, model: Model):
        self.model = model

    def __call__(self, tokens: Any, cache: Any) -> Any:
        import mlx.core as mx

        keys = tokens[:, None, :, None].astype(mx.float32)
        held, _ = cache[0].update_and_fetch(keys, keys)
        rows = engines.last_rows(self.model, np.array(held[0, 0, :, 0]), tokens.shape[1])
        with np.errstate(divide="ignore"):
            return mx.array(np.log(rows).astype(np.float32))[None]
