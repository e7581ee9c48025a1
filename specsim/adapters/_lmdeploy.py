"""LMDeploy: rejection sampling in PyTorch, for devices without its Triton kernel.

docs/engines/kernels.md has its signature, and a known issue. The adapter samples the bonus tokens first."""

from typing import Any

import numpy as np

from specsim.adapters import _engines as engines
from specsim.adapters import _stubs as stubs
from specsim.adapters._contract import Verifier, declares

BACKENDS = "lmdeploy.pytorch.backends"


def adapt(forward: engines.Function) -> Verifier:

    @declares(arrays="torch", dtypes=("float32",), one_hot=True)
    def verify(draft_tokens: Any, p: Any, q: Any, rng: np.random.Generator) -> Any:
        import torch

        with engines.seeded_torch(rng):
            bonus = torch.multinomial(p[:, -1], 1)[:, 0]
            output, _, _ = forward(p[:, :-1].log(), draft_tokens, bonus, is_greedy=None, draft_probs=q)
        return output

    return verify


def verifier() -> Verifier:
    """Adapt LMDeploy's own function. Raises EngineMissing if it is not installed."""
    folder = stubs.installed_folder("lmdeploy", "pip install --no-deps lmdeploy, and torch")
    module = stubs.part(folder, f"{BACKENDS}.default.rejection_sampling", f"{BACKENDS}.rejection_sampling")
    return adapt(module.DefaultRejectionSamplingImpl().forward)
