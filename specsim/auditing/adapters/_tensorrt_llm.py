"""TensorRT-LLM: rejection sampling of its PyTorch sampler, whose p is the *draft* and whose q is the target.

`tensorrt_llm/_torch/pyexecutor/sampling_utils.py`, read in 2026:

    get_rejected_indices(draft_probs[γ, V], target_probs[γ+1, V], generator, draft_tokens: list[int]) ->
    int[rejected, 1] sample_rejected(draft_probs, target_probs, generator, num_accepted) -> int

All positions are tested; the first rejected index is the number of accepted tokens. The sampler draws the
bonus from the target's last row, which the adapter does with the same generator.

Known issues: rejects where u > q/p; no guard where the residual is zero, so that `multinomial` raises;
drafted tokens go through pinned memory, which asks for a GPU: from a clone the request is dropped.
"""

from typing import Any

import numpy as np

from specsim.auditing._verifier.contract import Verifier, declares
from specsim.auditing.adapters import _engines as engines
from specsim.auditing.adapters import _stubs as stubs

MODULE = "tensorrt_llm._torch.pyexecutor.sampling_utils"


def adapt(
    get_rejected_indices: engines.Function, sample_rejected: engines.Function, device: str = "cpu"
) -> Verifier:
    """Make a verifier of any two functions with the signatures above, on `device`."""

    @declares(arrays="torch", device=device, dtypes=("float32",))
    def verify(draft_tokens: Any, p: Any, q: Any, rng: np.random.Generator) -> Any:
        import torch

        generator = torch.Generator(p.device).manual_seed(engines.seed_of(rng))
        gamma = draft_tokens.shape[1]

        def step(tokens: Any, p_rows: Any, q_rows: Any) -> list[int]:
            drafted = tokens.tolist()
            rejected = get_rejected_indices(q_rows, p_rows, generator, drafted)
            accepted = int(rejected[0]) if len(rejected) else gamma
            if accepted < gamma:
                last = sample_rejected(q_rows, p_rows, generator, accepted)
            else:
                last = torch.multinomial(p_rows[gamma], 1, generator=generator)
            return [*drafted[:accepted], int(last)]

        return engines.padded(map(step, draft_tokens, p, q), gamma + 1)

    return verify


def verifier(source: str = "") -> Verifier:
    """Adapt the two functions: installed, for a GPU, or of `source`, a clone. Raises EngineMissing."""
    names = ("get_rejected_indices", "sample_rejected")
    if not source:
        install = (
            "pip install tensorrt-llm, or clone NVIDIA/TensorRT-LLM: specsim audit tensorrt-llm,source=FOLDER"
        )
        rejected, recovered = (engines.engine_function(f"{MODULE}:{name}", install) for name in names)
        return adapt(rejected, recovered, device="cuda")
    file = f"{MODULE.replace('.', '/')}.py"
    folder = stubs.clone_folder(source, "tensorrt-llm", "NVIDIA/TensorRT-LLM", file)
    module = stubs.part(folder, MODULE)
    module.torch = stubs.Unpinned()  # type: ignore[attr-defined]
    return adapt(module.get_rejected_indices, module.sample_rejected)
