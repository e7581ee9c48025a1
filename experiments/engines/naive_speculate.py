"""naive-speculate: a teaching implementation in PyTorch.

`naive_speculate/speculate/utils.py`, read at 544b2cf:

    speculative_sampling(target_dists[γ+1, V], proposal_dists[γ, V], candidate_tokens[γ]) -> (rejected_idx,
    token)

One sequence at a time; `rejected_idx` is the number of accepted tokens. Known issue: 1e-9 is added to q in
the ratio and to *every* entry of the residual, so that with V tokens and a residual of mass m a share
V·1e-9/m of them is noise.
"""

from typing import Any

from experiments.engines._origins import Clone, engines, made_by, row_by_row
from specsim.adapters import Verifier

ORIGIN = Clone("VioletsOleander/naive-speculate")


def adapt(speculative_sampling: engines.Function) -> Verifier:
    """Make a verifier of any function with the signature above."""

    def step(drafted: Any, p: Any, q: Any) -> list[int]:
        accepted, last = speculative_sampling(p, q, drafted)
        return [*drafted[: int(accepted)].tolist(), int(last)]

    return row_by_row(step)


NAME = "naive_speculate.speculate.utils"
__getattr__ = made_by(__name__, verify=lambda: adapt(ORIGIN.part(NAME, inside="src/").speculative_sampling))
