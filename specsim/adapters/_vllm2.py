"""vLLM, the model runner V2: its rejection sampler, with token-wise or block verification.

`vllm/v1/worker/gpu/spec_decode/rejection_sampler_utils.py`, read at 0.32.0:

    rejection_sample(target_logits[n, V], draft_logits[requests, γ, V] | None, draft_sampled[n],
                     cu_num_logits[B + 1], pos[n], idx_mapping[B], expanded_idx_mapping[n],
                     expanded_local_pos[n], temperature[requests], seed[requests], num_speculative_steps,
                     use_block_verification=False, …) -> (int[B, γ+1], number[B])

The n rows are those of every request, one after the other, a request of k drafted tokens having k + 1; its
first `draft_sampled` is the token before the drafts. Noise is a hash of a request's seed, the position in the
text and the token, so that a request with a seed draws the same tokens in any batch: the adapter hands over
seeds drawn from `rng` for the others.

The kernels are Triton's. Without a GPU they are interpreted, at 40 to 90 ms a row.
"""

from functools import partial
from typing import Any

import numpy as np

from specsim.adapters import _engines as engines
from specsim.adapters import _stubs as stubs
from specsim.adapters._contract import Verifier, declares
from specsim.adapters._triton import device as kernels_device
from specsim.adapters._triton import language
from specsim.adapters._vllm import INSTALL, flatten

WORKER = "vllm.v1.worker.gpu"
MODULE = f"{WORKER}.spec_decode.rejection_sampler_utils"
PHILOX = "vllm.v1.watermarking.prfs.philox"


def adapt(rejection_sample: engines.Function, device: str = "cpu", block: bool = False) -> Verifier:
    """Make a verifier of any function with the signature above, with block verification or without."""

    @declares(arrays="torch", device=device, dtypes=("float32",), lengths=True, seeds=True, one_hot=True)
    def verify(
        draft_tokens: Any, p: Any, q: Any, rng: np.random.Generator, *, lengths: Any = None, seeds: Any = None
    ) -> Any:
        import torch

        steps, gamma = draft_tokens.shape
        counts = [gamma] * steps if lengths is None else [int(length) for length in lengths]
        rows = [count + 1 for count in counts]
        drawn = [engines.seed_of(rng) for _ in counts]
        if seeds is not None:
            drawn = [new if seed is None else seed for seed, new in zip(seeds, drawn, strict=True)]

        def integers(values: Any, dtype: Any = torch.int32) -> Any:
            return torch.as_tensor(values, dtype=dtype, device=p.device)

        requests = torch.arange(steps, dtype=torch.int32, device=p.device)
        places = torch.cat([integers(range(count)) for count in rows])
        before = torch.zeros((steps, 1), dtype=torch.int64, device=p.device)
        output, number = rejection_sample(
            flatten(p, rows).log(),
            None if q is None else q.log(),
            flatten(torch.cat([before, draft_tokens], dim=1), rows),
            integers(np.cumsum([0, *rows])),
            places.long(),
            requests,
            requests.repeat_interleave(integers(rows)),
            places,
            torch.ones(steps, device=p.device),
            integers(drawn, torch.int64),
            gamma,
            use_block_verification=block,
        )
        padded = torch.nn.functional.pad(output.long(), (0, gamma + 1 - output.shape[1]))
        kept = torch.arange(gamma + 1, device=p.device) < number[:, None]
        return torch.where(kept, padded, -1)

    return verify


def _own(block: bool) -> Verifier:
    """vLLM's own function, on a GPU or interpreted. Raises EngineMissing."""
    return adapt(sampler().rejection_sample, kernels_device(), block)


verifier, block_verifier = partial(_own, False), partial(_own, True)


def sampler() -> Any:
    """The module of vLLM's function, its kernels compiled or interpreted. Raises EngineMissing."""
    folder = stubs.installed_folder("vllm", INSTALL)
    names = (MODULE, f"{WORKER}.sample.gumbel", f"{WORKER}.sample.watermark", PHILOX)
    given = {"vllm.triton_utils": {**language(), "HAS_TRITON": True}}
    return stubs.part(folder, *names, given=given)
