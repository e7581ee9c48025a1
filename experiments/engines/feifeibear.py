"""feifeibear/LLMSpeculativeSampling: whole decoding loops in PyTorch, on models like Hugging Face's.

`sampling/speculative_sampling.py`, read at 59a209d:

    speculative_sampling(prefix[1, L], approx_model, target_model, max_len, gamma=4, temperature=1, top_k=0,
                         top_p=0, verbose=False, random_seed=None) -> tokens[1, ≥ L + max_len]
    speculative_sampling_v2(…), the same without a cache

Known issues: RuntimeError, without a message, wherever token 0 is sampled (`sampling/utils.py:53`): all ids
are raised by 1 here; with `random_seed` the generator is seeded again, alike, before every coin (`:60`); the
first accepts unless u > p/q.
"""

from collections.abc import Callable
from typing import Any

from experiments.engines._models import NoProgress, Shifted, Stateless, TupleCached
from experiments.engines._origins import Clone, engines, made_by, stubs
from specsim.adapters import Verifier

ORIGIN = Clone("feifeibear/LLMSpeculativeSampling")
GAMMA = 3


def adapt(
    speculative_sampling: engines.Function,
    wrap: Callable[[Any], Stateless] = TupleCached,
    raised: int = 1,
    seeded: bool = False,
) -> Verifier:
    """Make a decoder of any function with the signature above, on models in the form of `wrap`.

    `raised` is added to all ids; where `seeded`, `random_seed` is given."""

    @engines.decoder_for()
    def decode(request: engines.Request) -> list[int]:
        import torch

        target, draft = (Shifted(model, raised) for model in (request.target, request.draft))
        start = len(request.prompt)
        with engines.seeded_torch(request.rng):
            tokens = speculative_sampling(
                torch.tensor([list(request.prompt)]) + raised,
                wrap(draft),
                wrap(target),
                request.max_new_tokens,
                gamma=GAMMA,
                random_seed=int(request.rng.integers(1, 2**31)) if seeded else None,
            )
        new = tokens[0, start : start + request.max_new_tokens] - raised
        return engines.until_eos(new.tolist(), request.eos)

    return decode


def _module() -> Any:
    """The module of the clone. Raises EngineMissing without it."""
    folder = ORIGIN.folder("sampling/speculative_sampling.py")
    names = ("sampling.speculative_sampling", "sampling.kvcache_model", "sampling.utils")
    missing = ["transformers", "tqdm"]
    with stubs.parts(folder, *names, absent=missing, given={"globals": {}}) as (module, cache, _):
        cache.KVCacheModel._forward_with_kvcache.__defaults__ = (False,)  # it prints its shapes
    module.tqdm = NoProgress  # type: ignore[attr-defined]
    return module


#: The loop with a cache; the same with a random seed; with token 0 among the ids; the loop without a cache.
__getattr__ = made_by(
    __name__,
    verify=lambda: adapt(_module().speculative_sampling),
    seeded=lambda: adapt(_module().speculative_sampling, seeded=True),
    unshifted=lambda: adapt(_module().speculative_sampling, raised=0),
    stateless=lambda: adapt(_module().speculative_sampling_v2, wrap=Stateless),
)
