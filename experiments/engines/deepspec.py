"""DeepSpec: the verification of one drafted block in PyTorch.

`deepspec/eval/base_evaluator.py`, read at afdfa7c:

    verify_draft_tokens(*, target_model, proposal, position_ids, start, past_key_values_target, temperature,
                        max_proposal_tokens) -> result.committed_tokens[1, n + 1]

`proposal` has `draft_token_count`, `verify_input_ids` [1, γ + 1] and `draft_probs` [1, γ, V]. The target is
called with the former: the adapter gives log p. Known issue: q is raised to 1e-8 at least.
"""

from types import SimpleNamespace
from typing import Any

import numpy as np

from experiments.engines._origins import Clone, engines, made_by
from specsim.adapters import Verifier, declares

ORIGIN = Clone("deepseek-ai/DeepSpec")


def adapt(verify_draft_tokens: engines.Function) -> Verifier:
    """Make a verifier of any function with the signature above."""

    @declares(arrays="torch", dtypes=("float32",))
    def verify(draft_tokens: Any, p: Any, q: Any, rng: np.random.Generator) -> Any:
        import torch

        gamma = draft_tokens.shape[1]

        def step(drafted: Any, p_rows: Any, q_rows: Any) -> list[int]:
            def target(**_: Any) -> SimpleNamespace:
                return SimpleNamespace(logits=p_rows.log()[None])

            proposal = SimpleNamespace(
                draft_token_count=gamma,
                verify_input_ids=torch.nn.functional.pad(drafted, (1, 0))[None],
                draft_probs=q_rows[None],
            )
            found = verify_draft_tokens(
                target_model=target,
                proposal=proposal,
                position_ids=torch.arange(gamma + 1)[None],
                start=0,
                past_key_values_target=None,
                temperature=1.0,
                max_proposal_tokens=gamma,
            )
            tokens: list[int] = found.committed_tokens[0].tolist()
            return tokens

        with engines.seeded_torch(rng):
            return engines.padded(map(step, draft_tokens, p, q), gamma + 1)

    return verify


NAMES = "deepspec.eval.base_evaluator", "deepspec.utils.sampling"
__getattr__ = made_by(
    __name__, verify=lambda: adapt(ORIGIN.part(*NAMES, absent=["transformers"]).verify_draft_tokens)
)
