"""vLLM, V1: the rejection sampler, on flattened drafts of many requests.

`vllm/v1/sample/rejection_sampler.py`, read at 5eb2f2c (2025) and 7f6fc1c (2026):

    rejection_sample(draft_token_ids[n], num_draft_tokens: list[int], max_spec_len, cu_num_draft_tokens[B],
                     draft_probs[n, V] | None, target_probs[n, V], bonus_token_ids[B, 1], sampling_metadata)
        -> int32[B, max_spec_len + 1], padded with -1

n drafted tokens of all requests lie one after the other; `cu_num_draft_tokens` is the *inclusive* cumulative
sum, without a leading 0. Newer versions take `target_logits` in the place of `target_probs`. The bonus tokens
are sampled outside, before, from p's last row and with the request's own generator: the adapter does that. Of
the sampling metadata it fills what the function reads: no request is greedy, seeded requests have a
generator.

The kernels are Triton's, so the engine needs a GPU. Known issues: accepts where p/q ≥ u, u in float64 on
purpose; one exponential vector per request serves all its positions; an all-zero residual gives token 0."""

import inspect
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from specsim.auditing._verifier.contract import Verifier, declares
from specsim.auditing.adapters import _engines as engines


def adapt(rejection_sample: engines.Function, device: str = "cpu") -> Verifier:
    """Make a verifier of any function with the signature of V1's `rejection_sample`, on `device`."""
    takes_logits = "target_logits" in inspect.signature(rejection_sample).parameters

    @declares(arrays="torch", device=device, dtypes=("float32",), lengths=True, seeds=True, one_hot=True)
    def verify(
        draft_tokens: Any, p: Any, q: Any, rng: np.random.Generator, *, lengths: Any = None, seeds: Any = ()
    ) -> Any:
        import torch

        steps, gamma = draft_tokens.shape
        counts = [gamma] * steps if lengths is None else [int(length) for length in lengths]
        generators = {
            step: torch.Generator(p.device).manual_seed(seed)
            for step, seed in enumerate(seeds)
            if seed is not None
        }
        target = flatten(p, counts)
        with engines.seeded_torch(rng):
            bonus = torch.multinomial(p[range(steps), counts], 1)
            for step, generator in generators.items():
                bonus[step] = torch.multinomial(p[step, counts[step]], 1, generator=generator)
            output = rejection_sample(
                flatten(draft_tokens, counts),
                counts,
                max(counts),
                torch.tensor(counts, device=p.device).cumsum(0),
                None if q is None else flatten(q, counts),
                target.log() if takes_logits else target,
                bonus,
                SimpleNamespace(
                    all_greedy=False,
                    all_random=True,
                    temperature=torch.ones(steps, device=p.device),
                    top_k=None,
                    top_p=None,
                    generators=generators,
                ),
            )
        return torch.nn.functional.pad(output, (0, gamma + 1 - output.shape[1]), value=-1)

    return verify


verifier = engines.installed(
    adapt, "vllm.v1.sample.rejection_sampler:rejection_sample", install="pip install vllm", device="cuda"
)


def flatten(rows: Any, counts: Sequence[int]) -> Any:
    """The first counts[s] of each of `rows` [B, ≥ γ, …], one request after the other: [n, …], contiguous."""
    import torch

    return torch.cat([row[:count] for row, count in zip(rows, counts, strict=True)])
