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

from specsim.adapters import _engines as engines
from specsim.adapters import _stubs as stubs
from specsim.adapters._contract import Verifier
from specsim.adapters._models import NoProgress, Shifted, Stateless, TupleCached

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


def cached(source: str = "") -> Verifier:
    """Adapt the first loop in `source`, a clone. Raises EngineMissing without it."""
    return adapt(_module(source).speculative_sampling)


def seeded(source: str = "") -> Verifier:
    """The same with a random seed."""
    return adapt(_module(source).speculative_sampling, seeded=True)


def unshifted(source: str = "") -> Verifier:
    """The same with token 0 among the ids."""
    return adapt(_module(source).speculative_sampling, raised=0)


def stateless(source: str = "") -> Verifier:
    """Adapt the second loop, without a cache."""
    return adapt(_module(source).speculative_sampling_v2, wrap=Stateless)


def _module(source: str) -> Any:
    file = "sampling/speculative_sampling.py"
    folder = stubs.clone_folder(source, "feifeibear", "feifeibear/LLMSpeculativeSampling", file)
    names = ("sampling.speculative_sampling", "sampling.kvcache_model", "sampling.utils")
    missing = ["transformers", "tqdm"]
    with stubs.parts(folder, *names, absent=missing, given={"globals": {}}) as (module, cache, _):
        cache.KVCacheModel._forward_with_kvcache.__defaults__ = (False,)  # it prints its shapes
    module.tqdm = NoProgress  # type: ignore[attr-defined]
    return module
