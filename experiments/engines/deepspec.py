"""DeepSpec: the verification of one drafted block in PyTorch.

`deepspec/eval/base_evaluator.py`, read at afdfa7c:

    verify_draft_tokens(*, target_model, proposal, position_ids, start, past_key_values_target, temperature,
                        max_proposal_tokens) -> result.committed_tokens[1, n + 1]

`proposal` has `draft_token_count`, `verify_input_ids` [1, γ + 1] and `draft_probs` [1, γ, V]. The target is
called with the former: the adapter gives log p. Known issue: q is raised to 1e-8 at least.
"""

from types import SimpleNamespace
from typing import Any

from experiments.engines._origins import Clone, engines, made_by, row_by_row
from specsim.adapters import Verifier

ORIGIN = Clone("deepseek-ai/DeepSpec")


def adapt(verify_draft_tokens: engines.Function) -> Verifier:
    """Make a verifier of any function with the signature above."""

    def step(drafted: Any, p: Any, q: Any) -> list[int]:
        import torch

        gamma = len(drafted)
        proposal = SimpleNamespace(
            draft_token_count=gamma,
            verify_input_ids=torch.nn.functional.pad(drafted, (1, 0))[None],
            draft_probs=q[None],
        )
        found = verify_draft_tokens(
            target_model=lambda **_: SimpleNamespace(logits=p.log()[None]),
            proposal=proposal,
            position_ids=torch.arange(gamma + 1)[None],
            start=0,
            past_key_values_target=None,
            temperature=1.0,
            max_proposal_tokens=gamma,
        )
        tokens: list[int] = found.committed_tokens[0].tolist()
        return tokens

    return row_by_row(step)


NAMES = "deepspec.eval.base_evaluator", "deepspec.utils.sampling"
__getattr__ = made_by(
    __name__, verify=lambda: adapt(ORIGIN.part(*NAMES, absent=["transformers"]).verify_draft_tokens)
)
