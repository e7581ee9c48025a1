"""FlashInfer: the kernel for chains of drafts, whose p is the *draft* and whose q is the target.

docs/engines/kernels.md has its signature, and known issues. It needs a GPU."""

from typing import Any

import numpy as np

from specsim.adapters import _engines as engines
from specsim.adapters._contract import Verifier, declares


def adapt(chain_speculative_sampling: engines.Function, device: str = "cpu") -> Verifier:

    @declares(arrays="torch", device=device, dtypes=("float32",))
    def verify(draft_tokens: Any, p: Any, q: Any, rng: np.random.Generator) -> Any:
        import torch

        generator = torch.Generator(p.device).manual_seed(engines.seed_of(rng))
        output, _, _ = chain_speculative_sampling(q, draft_tokens.int(), p, generator=generator)
        return output

    return verify


verifier = engines.installed(
    adapt,
    "flashinfer.sampling:chain_speculative_sampling",
    install="pip install flashinfer-python",
    device="cuda",
)
