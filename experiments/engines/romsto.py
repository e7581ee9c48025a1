"""romsto/Speculative-Decoding: a whole decoding loop in PyTorch, on models like Hugging Face's.

`sampling/speculative_decoding.py`, read at db7db67:

    speculative_generate(inputs, drafter, target, gamma=5, logits_processor=GreedyProcessor(), max_gen_len=40,
                         eos_tokens_id=1, pad_token_id=0, use_cache=False, skip_sample_adjustment=False,
                         first_target=True, …) -> (tokens, acceptance rate)

Known issues: the default processor draws the most probable token, but accepts it with probability p/q of the
softmaxes (`:139`), so that texts are not the target's greedy ones; with `use_cache` the whole text and a
cache of it are handed to the model (`:113`); ZeroDivisionError where no token is drafted (`:189`);
`skip_sample_adjustment` samples from p after a rejection.
"""

from functools import partial
from typing import Any

from experiments.engines._models import Stateless, TupleCached
from experiments.engines._origins import Clone, engines, made_by, stubs
from specsim.adapters import Verifier

ORIGIN = Clone("romsto/Speculative-Decoding")
GAMMA = 3


def adapt(speculative_generate: engines.Function, processor: Any, **options: Any) -> Verifier:
    """Make a decoder of any function with the signature above; greedy where `processor` is None."""
    wrap = TupleCached if options.get("use_cache") else Stateless
    sampling = {} if processor is None else {"logits_processor": processor}

    @engines.decoder_for(top_k=1 if processor is None else 0)
    def decode(request: engines.Request) -> list[int]:
        with engines.seeded_torch(request.rng):
            tokens, _ = speculative_generate(
                list(request.prompt),
                wrap(request.draft),
                wrap(request.target),
                gamma=GAMMA,
                max_gen_len=request.max_new_tokens,
                eos_tokens_id=-1 if request.eos is None else request.eos,
                **sampling,
                **options,
            )
        return engines.until_eos(tokens, request.eos)

    return decode


def _verify(greedy: bool = False, **options: Any) -> Verifier:
    """Adapt the code of the clone, with random sampling unless `greedy`. Raises EngineMissing without it."""
    folder = ORIGIN.folder("sampling/speculative_decoding.py")
    names = ("sampling.speculative_decoding", "utils.logits_processor", "utils.caching")
    with stubs.parts(folder, *names, absent=["transformers"]) as (module, processors, _):
        processor = None if greedy else processors.MultinomialProcessor(1.0)
        return adapt(module.speculative_generate, processor, **options)


#: Random sampling; the default processor; a cache; and without the residual.
__getattr__ = made_by(
    __name__,
    verify=_verify,
    greedy=partial(_verify, greedy=True),
    cached=partial(_verify, use_cache=True),
    unadjusted=partial(_verify, skip_sample_adjustment=True),
)
