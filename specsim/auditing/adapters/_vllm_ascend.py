"""vLLM on Ascend: vLLM's rejection sampler written out in PyTorch, for devices without Triton.

`vllm_ascend/sample/rejection_sampler.py`, read at 0164701 (2025) and 0.23:

    rejection_random_sample_pytorch(output_token_ids[B, γ+1], cu_num_draft_tokens[B], draft_token_ids[n],
                                    draft_probs[n, V] | None, target_probs[n, V], bonus_token_ids[B, 1],
                                    recovered_token_ids[n], uniform_probs[n], is_greedy[B], max_spec_len,
                                    vocab_size, IS_NGRAM=False)
    sample_recovered_tokens_pytorch(output_token_ids[n], cu_num_draft_tokens[B], draft_token_ids[n],
    draft_probs,
                                    target_probs, q[B, V], vocab_size, IS_NGRAM=False)

Both write to their first argument; `q` are exponential variables, one vector per request, not the draft. The
adapter does what `rejection_sample` does around them: it draws uniforms in float64, the exponentials, and the
bonus tokens. `expand_pytorch`, which spreads temperatures over a request's tokens, has nothing to do at
temperature 1.

Known issues: newer versions use pinned memory, which needs an accelerator; with IS_NGRAM the function of
recovered tokens set entries of target_probs to 0 in place (vllm-project/vllm-ascend#2881).
"""

from typing import Any

import numpy as np

from specsim.auditing._verifier.contract import Verifier, declares
from specsim.auditing.adapters import _engines as engines
from specsim.auditing.adapters._vllm import flatten

MODULE = "vllm_ascend.sample.rejection_sampler"


def adapt(rejection_random_sample: engines.Function, sample_recovered_tokens: engines.Function) -> Verifier:
    """Make a verifier of any two functions with the signatures above."""

    @declares(arrays="torch", dtypes=("float32",), lengths=True, one_hot=True)
    def verify(draft_tokens: Any, p: Any, q: Any, rng: np.random.Generator, *, lengths: Any = None) -> Any:
        import torch

        steps, gamma = draft_tokens.shape
        vocab_size = p.shape[2]
        counts = [gamma] * steps if lengths is None else [int(length) for length in lengths]
        ends = torch.tensor(counts).cumsum(0)
        flat = flatten(draft_tokens, counts)
        rows = (None if q is None else flatten(q, counts), flatten(p, counts))
        output = torch.full((steps, gamma + 1), -1, dtype=torch.int32)
        recovered = torch.empty_like(flat)
        with engines.seeded_torch(rng):
            bonus = torch.multinomial(p[range(steps), counts], 1)
            uniforms = torch.rand(len(flat), dtype=torch.float64)
            exponentials = torch.empty((steps, vocab_size)).exponential_()
        sample_recovered_tokens(recovered, ends, flat, *rows, exponentials, vocab_size, IS_NGRAM=q is None)
        rejection_random_sample(
            output,
            ends,
            flat,
            *rows,
            bonus,
            recovered,
            uniforms,
            torch.zeros(steps, dtype=torch.bool),
            max(counts),
            vocab_size,
            IS_NGRAM=q is None,
        )
        return output

    return verify


verifier = engines.installed(
    adapt,
    f"{MODULE}:rejection_random_sample_pytorch",
    f"{MODULE}:sample_recovered_tokens_pytorch",
    install="pip install vllm-ascend",
)
