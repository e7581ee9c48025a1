"""flashspec: the verification of a batch of chains, in PyTorch.

`flashspec/sampling/rejection.py`, read at 0.3.1:

    rejection_sample(input_ids[B, L], draft_logprobs[B, γ, V], target_logprobs[B, γ, V],
                     draft_token_ids[B, γ], gamma, *, generator=None)
        -> (int[B, γ], padded with -1, accepted[B], acceptance rate)

Where all drafted tokens are accepted the caller draws the bonus token, which the adapter does with the same
generator.
"""

from typing import Any

import numpy as np

from experiments.engines._origins import Wheel, engines, made_by
from specsim.adapters import Verifier, declares

ORIGIN = Wheel("flashspec", "flashspec")


def adapt(rejection_sample: engines.Function) -> Verifier:
    """Make a verifier of any function with the signature above."""

    @declares(arrays="torch", dtypes=("float32",))
    def verify(draft_tokens: Any, p: Any, q: Any, rng: np.random.Generator) -> Any:
        import torch

        generator, gamma = torch.Generator().manual_seed(engines.seed_of(rng)), draft_tokens.shape[1]
        bonus = torch.multinomial(p[:, -1], 1, generator=generator)
        text = torch.zeros((len(p), 1), dtype=torch.long)
        tokens, accepted, _ = rejection_sample(
            text, q.log(), p[:, :-1].log(), draft_tokens, gamma, generator=generator
        )
        return torch.cat([tokens, torch.where(accepted[:, None] == gamma, bonus, -1)], dim=1)

    return verify


__getattr__ = made_by(
    __name__, verify=lambda: adapt(ORIGIN.part("flashspec.sampling.rejection").rejection_sample)
)
