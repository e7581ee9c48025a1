"""DFlash: the verification of a drafted block, in PyTorch.

`dflash/model.py`, read at 0.1.0:

    _rejection_sample(draft_tokens[1, γ], target_probs[1, γ+1, V], draft_probs[1, γ, V], draft_indices=None)
        -> (accepted, token)

One sequence at a time, as the engine calls it.
"""

from typing import Any

import numpy as np

from experiments.engines._origins import Wheel, engines, made_by
from specsim.adapters import Verifier, declares

ORIGIN = Wheel("dflash", "dflash")


def adapt(rejection_sample: engines.Function) -> Verifier:
    """Make a verifier of any function with the signature above."""

    @declares(arrays="torch", dtypes=("float32",))
    def verify(draft_tokens: Any, p: Any, q: Any, rng: np.random.Generator) -> Any:
        def step(drafted: Any, p_rows: Any, q_rows: Any) -> list[int]:
            accepted, last = rejection_sample(drafted[None], p_rows[None], q_rows[None])
            return [*drafted[:accepted].tolist(), int(last)]

        with engines.seeded_torch(rng):
            return engines.padded(map(step, draft_tokens, p, q), p.shape[1])

    return verify


__getattr__ = made_by(
    __name__,
    verify=lambda: adapt(
        ORIGIN.part("dflash.model", needs="torch, transformers", absent=["transformers"])._rejection_sample
    ),
)
