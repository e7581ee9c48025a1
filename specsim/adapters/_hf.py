"""Hugging Face transformers: the verification of assisted generation, and assisted generation itself.

docs/engines/kernels.md has the signature of the former, and known issues."""

import inspect
from functools import lru_cache
from typing import Any

import numpy as np

from specsim.adapters import _engines as engines
from specsim.adapters._contract import Verifier, declares

INSTALL = "pip install torch transformers"


def adapt(speculative_sampling: engines.Function) -> Verifier:
    parameters = inspect.signature(speculative_sampling).parameters

    @declares(arrays="torch", dtypes=("float32",))
    def verify(draft_tokens: Any, p: Any, q: Any, rng: np.random.Generator) -> Any:
        gamma = draft_tokens.shape[1]
        older = {"is_done_candidate": False, "last_assistant_token_is_eos": False, "max_matches": gamma}
        extra = {name: value for name, value in older.items() if name in parameters}

        def step(*rows: Any) -> list[int]:
            tokens, q_logits, p_logits = (row[None] for row in rows)
            valid, _ = speculative_sampling(tokens, q_logits, gamma, p_logits, **extra)
            return valid[0].tolist()

        with engines.seeded_torch(rng):
            return engines.padded(map(step, draft_tokens, q.log(), p.log()), gamma + 1)

    return verify


kernel = engines.installed(adapt, "transformers.generation.utils:_speculative_sampling", install=INSTALL)


def generate(
    temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0, repetition_penalty: float = 1.0
) -> Verifier:
    """transformers' own assisted `generate`, as a decoder. Raises EngineMissing without transformers."""
    transformer = engines.engine_function("specsim.adapters._hf_model:TableTransformer", INSTALL)
    wrapped: Any = lru_cache(maxsize=8)(transformer)  # made once for each model

    sampling: dict[str, Any] = {"do_sample": False}
    if temperature > 0:
        sampling = {"do_sample": True, "temperature": temperature, "top_k": top_k, "top_p": top_p}

    @engines.decoder_for(
        temperature=temperature, top_k=top_k or None, top_p=top_p, repetition_penalty=repetition_penalty
    )
    def decode(request: engines.Request) -> list[int]:
        import torch

        with engines.seeded_torch(request.rng):
            sequence = wrapped(request.target).generate(
                torch.tensor([list(request.prompt)]),
                assistant_model=wrapped(request.draft),
                **sampling,
                repetition_penalty=repetition_penalty,
                max_new_tokens=request.max_new_tokens,
                eos_token_id=request.eos,
                pad_token_id=request.eos,
            )
        return [int(token) for token in sequence[0, len(request.prompt) :]]

    return decode
