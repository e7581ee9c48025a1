"""naive-speculate: a teaching implementation in PyTorch.

`naive_speculate/speculate/utils.py`, read at 544b2cf:

    speculative_sampling(target_dists[γ+1, V], proposal_dists[γ, V], candidate_tokens[γ]) -> (rejected_idx, token)

One sequence at a time; `rejected_idx` is the number of accepted tokens. Known issue: 1e-9 is added to q in
the ratio and to *every* entry of the residual, so that with V tokens and a residual of mass m a share
V·1e-9/m of them is noise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from specsim.auditing._verifier.contract import Verifier, declares
from specsim.auditing.adapters._engines import engine_function, seeded_torch


def verifier() -> Verifier:
    """Adapt The package's own function. Raises EngineMissing if it is not installed."""
    return adapt(
        engine_function(
            "naive_speculate.speculate.utils:speculative_sampling",
            "clone VioletsOleander/naive-speculate and pip install it",
        )
    )


def adapt(speculative_sampling: Callable[..., Any]) -> Verifier:
    """Make a verifier of any function with the signature above."""

    @declares(arrays="torch", dtypes=("float32",))
    def verify(draft_tokens: Any, p: Any, q: Any, rng: np.random.Generator) -> Any:
        import torch

        output = torch.full((len(p), p.shape[1]), -1)
        with seeded_torch(rng):
            for step, (drafted, p_rows, q_rows) in enumerate(zip(draft_tokens, p, q, strict=True)):
                accepted, last = speculative_sampling(p_rows, q_rows, drafted)
                output[step, : int(accepted)] = drafted[: int(accepted)]
                output[step, int(accepted)] = int(last)
        return output

    return verify
