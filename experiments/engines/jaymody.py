"""jaymody/speculative-sampling: a whole decoding loop in NumPy.

`main.py`, read at 03b4759:

    speculative_sampling(x[L], draft_model, target_model, N, K) -> tokens[≥ L + N]

A model maps the whole text [T] to its rows float64 [T, V]; q is the target there, p the draft. Randomness is
NumPy's global generator, which is seeded and restored.
"""

import numpy as np

from experiments import Floats, Ints
from experiments.engines._models import NoProgress
from experiments.engines._origins import Clone, engines, made_by
from specsim.adapters import Verifier
from specsim.models import Model

ORIGIN = Clone("jaymody/speculative-sampling")
GAMMA = 3


def adapt(speculative_sampling: engines.Function) -> Verifier:
    """Make a decoder of any function with the signature above."""

    def rows_of(model: Model) -> engines.Function:
        def rows(tokens: Ints) -> Floats:
            return engines.last_rows(model, tokens, len(tokens))

        return rows

    @engines.decoder_for()
    def decode(request: engines.Request) -> list[int]:
        state, start = np.random.get_state(), len(request.prompt)  # noqa: NPY002, the loop's own
        np.random.seed(int(request.rng.integers(2**32)))  # noqa: NPY002
        try:
            draft, target = rows_of(request.draft), rows_of(request.target)
            prompt = np.array(list(request.prompt))
            tokens = speculative_sampling(prompt, draft, target, request.max_new_tokens, GAMMA)
        finally:
            np.random.set_state(state)  # noqa: NPY002
        new = tokens[start : start + request.max_new_tokens]
        return engines.until_eos(new.tolist(), request.eos)

    return decode


def _verify() -> Verifier:
    """Adapt the code of the clone. Raises EngineMissing without it."""
    module = ORIGIN.part("main", absent=["tqdm"], given={"gpt2": {}, "utils": {}})
    module.tqdm = NoProgress
    return adapt(module.speculative_sampling)


__getattr__ = made_by(__name__, verify=_verify)
