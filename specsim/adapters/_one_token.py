"""Functions that emit one token, as in tutorials and listings of papers.

    function(p[V], q[V], rng) -> token                   drafting included      `adapt_decoder`
    function(p[V], q[V], draft_token, rng) -> token      verification only      `adapt`

p and q are NumPy rows, `rng` a NumPy Generator."""

from typing import Any

import numpy as np

from specsim.adapters import _engines as engines
from specsim.adapters._contract import Verifier, declares


def adapt(function: engines.Function) -> Verifier:
    """The verifier made of function(p, q, draft_token, rng) -> token: every step emits that token alone."""

    @declares(gamma=1)
    def verify(draft_tokens: Any, p: Any, q: Any, rng: np.random.Generator) -> Any:
        steps = zip(p[:, 0], q[:, 0], draft_tokens[:, 0].tolist(), strict=True)
        return engines.padded(([function(*rows, rng)] for rows in steps), p.shape[1])

    return verify


def adapt_decoder(function: engines.Function) -> Verifier:
    """The decoder made of function(p, q, rng) -> token, called once for every token."""

    @engines.decoder_for()
    def decode(request: engines.Request) -> list[int]:
        history = list(request.prompt)

        def tokens() -> Any:
            for _ in range(request.max_new_tokens):
                p, q = (model.rows([history])[0] for model in (request.target, request.draft))
                history.append(int(function(p, q, request.rng)))
                yield history[-1]

        return engines.until_eos(tokens(), request.eos)

    return decode
