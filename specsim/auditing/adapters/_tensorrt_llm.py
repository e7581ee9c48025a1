"""TensorRT-LLM: rejection sampling of its PyTorch sampler, whose p is the *draft* and whose q is the target.

`tensorrt_llm/_torch/pyexecutor/sampling_utils.py`, read in 2026:

    get_rejected_indices(draft_probs[γ, V], target_probs[γ+1, V], generator, draft_tokens: list[int]) -> int[rejected, 1]
    sample_rejected(draft_probs, target_probs, generator, num_accepted) -> int

All positions are tested; the first rejected index is the number of accepted tokens. The sampler draws the
bonus from the target's last row, which the adapter does with the same generator.

Known issues: rejects where u > q/p; no guard where the residual is zero, so that `multinomial` raises;
drafted tokens go through pinned memory, which asks for a GPU in some versions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from specsim.auditing._verifier.contract import Verifier, declares
from specsim.auditing.adapters._engines import engine_function, seed_of

MODULE = "tensorrt_llm._torch.pyexecutor.sampling_utils"
INSTALL = "pip install tensorrt-llm"


def verifier() -> Verifier:
    """Adapt TensorRT-LLM's own functions. Raises EngineMissing if it is not installed."""
    return adapt(
        engine_function(f"{MODULE}:get_rejected_indices", INSTALL),
        engine_function(f"{MODULE}:sample_rejected", INSTALL),
        device="cuda",
    )


def adapt(
    get_rejected_indices: Callable[..., Any], sample_rejected: Callable[..., Any], device: str = "cpu"
) -> Verifier:
    """Make a verifier of any two functions with the signatures above, on `device`."""

    @declares(arrays="torch", device=device, dtypes=("float32",))
    def verify(draft_tokens: Any, p: Any, q: Any, rng: np.random.Generator) -> Any:
        import torch

        generator = torch.Generator(p.device).manual_seed(seed_of(rng))
        steps, gamma = draft_tokens.shape
        output = torch.full((steps, gamma + 1), -1)
        for step in range(steps):
            drafted = draft_tokens[step].tolist()
            rejected = get_rejected_indices(q[step], p[step], generator, drafted)
            accepted = int(rejected[0]) if len(rejected) else gamma
            if accepted < gamma:
                last = sample_rejected(q[step], p[step], generator, accepted)
            else:
                last = int(torch.multinomial(p[step, gamma], 1, generator=generator))
            output[step, : accepted + 1] = torch.tensor([*drafted[:accepted], last])
        return output

    return verify
