"""Functions that emit one token, as in tutorials and listings of papers.

    function(p[V], q[V], rng) -> token                   drafting included      `adapt_decoder`
    function(p[V], q[V], draft_token, rng) -> token      verification only      `adapt`

p and q are NumPy rows, `rng` a NumPy Generator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from specsim.auditing._verifier.contract import Verifier, declares
from specsim.auditing.adapters._engines import Request, decoder_for, until_eos


def adapt(function: Callable[..., Any]) -> Verifier:
    """The verifier made of function(p, q, draft_token, rng) -> token: every step emits that token alone."""

    @declares(gamma=1)
    def verify(draft_tokens: Any, p: Any, q: Any, rng: np.random.Generator) -> Any:
        output = np.full((len(p), p.shape[1]), -1)
        for step, (p_rows, q_rows, drafted) in enumerate(zip(p, q, draft_tokens, strict=True)):
            output[step, 0] = function(p_rows[0], q_rows[0], int(drafted[0]), rng)
        return output

    return verify


def adapt_decoder(function: Callable[..., Any]) -> Verifier:
    """The decoder made of function(p, q, rng) -> token, called once for every token."""

    @decoder_for()
    def decode(request: Request) -> list[int]:
        history = list(request.prompt)

        def tokens() -> Any:
            for _ in range(request.max_new_tokens):
                p, q = (model.rows([history])[0] for model in (request.target, request.draft))
                history.append(int(function(p, q, request.rng)))
                yield history[-1]

        return until_eos(tokens(), request.eos)

    return decode
