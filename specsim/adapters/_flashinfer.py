"""FlashInfer: the kernel for chains of drafts, whose p is the *draft* and whose q is the target.

`flashinfer/sampling.py`, as its documentation has it:

    chain_speculative_sampling(draft_probs[B, γ, V], draft_token_ids[B, γ], target_probs[B, γ+1, V],
                               maybe_output_accepted_token_num=None,
                               maybe_output_emitted_draft_token_num=None, deterministic=True, generator=None,
                               seed=None, offset=None)
        -> (int32[B, γ+1], padded with -1, accepted[B], emitted[B])

It needs a GPU. Its first call compiles for about 90 s: give an audit `--timeout 300` then. Known issues:
`accepted` counts every position whose own test passes, as if they were independent, `emitted` stops at the
first rejection; of a tensor of seeds only the first is read."""

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
