"""DFlash: the verification of a drafted block, in PyTorch.

`dflash/model.py`, read at 0.1.0:

    _rejection_sample(draft_tokens[1, γ], target_probs[1, γ+1, V], draft_probs[1, γ, V], draft_indices=None)
        -> (accepted, token)

One sequence at a time, as the engine calls it.
"""

from typing import Any

from experiments.engines._origins import Wheel, engines, made_by, row_by_row
from specsim.adapters import Verifier

ORIGIN = Wheel("dflash", "dflash")


def adapt(rejection_sample: engines.Function) -> Verifier:
    """Make a verifier of any function with the signature above."""

    def step(drafted: Any, p: Any, q: Any) -> list[int]:
        accepted, last = rejection_sample(drafted[None], p[None], q[None])
        return [*drafted[:accepted].tolist(), int(last)]

    return row_by_row(step)


__getattr__ = made_by(
    __name__,
    verify=lambda: adapt(
        ORIGIN.part("dflash.model", needs="torch, transformers", absent=["transformers"])._rejection_sample
    ),
)
