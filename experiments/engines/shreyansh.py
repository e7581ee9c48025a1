"""shreyansh26/Speculative-Decoding: the verification of one sequence in PyTorch.

`common/verification.py`, read at 76335be:

    probabilistic_verify(model, prefix_ids, draft_ids, draft_probs[γ, V], generator) -> result.emitted_ids

The model is called with prefix and drafts, and answers with their logits: the adapter gives log p.

Known issue: the bonus is the most probable token instead of a sample (`:482`).
"""

from types import SimpleNamespace
from typing import Any

import numpy as np

from experiments.engines._origins import Clone, engines, made_by
from specsim.adapters import Verifier, declares

ORIGIN = Clone("shreyansh26/Speculative-Decoding")


def adapt(probabilistic_verify: engines.Function) -> Verifier:
    """Make a verifier of any function with the signature above."""

    @declares(arrays="torch", dtypes=("float32",))
    def verify(draft_tokens: Any, p: Any, q: Any, rng: np.random.Generator) -> Any:
        import torch

        generator = torch.Generator().manual_seed(engines.seed_of(rng))

        def step(drafted: Any, p_rows: Any, q_rows: Any) -> list[int]:
            def model(_: Any) -> SimpleNamespace:
                return SimpleNamespace(logits=p_rows.log()[None])

            found = probabilistic_verify(model, [0], drafted.tolist(), q_rows, generator)
            tokens: list[int] = found.emitted_ids
            return tokens

        return engines.padded(map(step, draft_tokens, p, q), p.shape[1])

    return verify


__getattr__ = made_by(__name__, verify=lambda: adapt(ORIGIN.part("common.verification").probabilistic_verify))
