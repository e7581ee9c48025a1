"""sequential-speculative-decoding: standard and hierarchical speculative decoding, whole steps in PyTorch.

`seqspecdecod/` `standard_sd.py`, `naive_hsd.py`, `capped_hsd.py`, read at 0.1.1:

    …_step(draft_model, target_model, input_ids[1, L], gamma=5, draft_temperature=0.6,
           target_temperature=0.6) -> (input_ids[1, L + n], accepted, gamma)

A model is called with the whole text, and its answer has `logits`. The adapter repeats the step until the
text is long enough, and cuts at `eos`, as the package's loop does.

Known issue: the capped form never tests the last drafted token, and its residual takes p/q and q of
neighbouring positions (`capped_hsd.py`).
"""

from functools import partial

from experiments.engines._models import Stateless
from experiments.engines._origins import Wheel, engines, made_by
from specsim.adapters import Verifier

ORIGIN = Wheel("sequential-speculative-decoding", "seqspecdecod")
GAMMA = 3


def adapt(step: engines.Function) -> Verifier:
    """Make a decoder of any function with the signature above."""

    @engines.decoder_for()
    def decode(request: engines.Request) -> list[int]:
        import torch

        text, start = torch.tensor([list(request.prompt)]), len(request.prompt)
        draft, target = Stateless(request.draft), Stateless(request.target)
        with engines.seeded_torch(request.rng):
            while (
                text.shape[1] - start < request.max_new_tokens and request.eos not in text[0, start:].tolist()
            ):
                text, _, _ = step(draft, target, text, GAMMA, 1.0, 1.0)
        new = text[0, start : start + request.max_new_tokens]
        return engines.until_eos(new.tolist(), request.eos)

    return decode


def _step(module: str, function: str) -> Verifier:
    """Adapt a step of the wheel. Raises EngineMissing if it is not installed."""
    return adapt(getattr(ORIGIN.part(f"seqspecdecod.{module}", "seqspecdecod.sampling"), function))


#: Standard, naive hierarchical and capped hierarchical speculative decoding.
__getattr__ = made_by(
    __name__,
    verify=partial(_step, "standard_sd", "standard_speculative_step"),
    naive=partial(_step, "naive_hsd", "naive_hsd_step"),
    capped=partial(_step, "capped_hsd", "capped_hsd_step"),
)
