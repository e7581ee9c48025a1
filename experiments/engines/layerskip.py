"""LayerSkip: self-speculative decoding, where the draft is the target's first layers.

`self_speculation/self_speculation_generator.py`, read at f42c669:

    SelfSpeculativeGenerationStrategy().generate_token_ids(model, input_ids, eos_token_ids, generation_config)
        -> result.predicted_tokens, without the end-of-text

It calls `forward_early` and `forward_remainder` of the module, which run the first layers, and the others: in
their place the adapter puts functions on a cache of two layers, whose keys are the tokens that the draft and
the target have read.

Known issues: ZeroDivisionError for a text of one token (`:98`); 1e-6 is added to the mass of the residual.
"""

from types import SimpleNamespace
from typing import Any

from experiments.engines._models import log_rows
from experiments.engines._origins import Clone, engines, made_by, stubs
from specsim.adapters import Verifier

ORIGIN = Clone("facebookresearch/LayerSkip")
GAMMA, PACKAGE = 3, "self_speculation"


def adapt(generate_token_ids: engines.Function, configuration: engines.Function) -> Verifier:
    """Make a decoder of any function with the signature above, and the class of its configuration."""

    @engines.decoder_for()
    def decode(request: engines.Request) -> list[int]:
        ends = [] if request.eos is None else [request.eos]
        settings = configuration(
            max_steps=request.max_new_tokens,
            exit_layer=1,
            num_speculations=GAMMA,
            sample=True,
            temperature=1.0,
            top_k=0,
            top_p=1.0,
        )
        model = SimpleNamespace(device="cpu", target=request.target, draft=request.draft)
        with engines.seeded_torch(request.rng):
            found = generate_token_ids(model, list(request.prompt), ends, settings).predicted_tokens
        return found if len(found) >= request.max_new_tokens else [*found, *ends]

    return decode


def _verify() -> Verifier:
    """Adapt the code of the clone. Raises EngineMissing without it."""
    folder = ORIGIN.folder(f"{PACKAGE}/self_speculation_generator.py")
    names = [f"{PACKAGE}.{name}" for name in ("self_speculation_generator", "generator_base")]
    names.append(f"{PACKAGE}.llama_model_utils")
    with stubs.parts(folder, *names, absent=["colorama", "transformers"]) as (module, base, _):
        module.forward_early, module.forward_remainder = _early, _remainder  # type: ignore[attr-defined]
        strategy = module.SelfSpeculativeGenerationStrategy()
        return adapt(strategy.generate_token_ids, base.GenerationConfig)


def _early(model: Any, input_ids: Any, past: Any, exit_layer: int, query_cache: Any) -> SimpleNamespace:
    """The draft: the first layer of the cache."""
    import torch

    tokens = torch.cat((_held(past, 0), input_ids), dim=1)
    query = input_ids if query_cache is None else torch.cat((query_cache, input_ids), dim=1)
    rows = log_rows(model.draft, tokens[0].numpy(), input_ids.shape[1])
    return SimpleNamespace(
        logits=rows[None], past_key_values=(_layer(tokens), *(past or ())[1:]), exit_query_cache=query
    )


def _remainder(model: Any, input_ids: Any, past: Any, exit_layer: int, query_cache: Any) -> SimpleNamespace:
    """The target: the second layer. What the draft has read comes from its cache of queries, but for the last
    token, which the first layer reads here."""
    import torch

    last = input_ids[:, -1:].long()
    new = input_ids.long() if query_cache is None else torch.cat((query_cache, last), dim=1)
    tokens = torch.cat((_held(past, 1), new), dim=1)
    read = torch.cat((_held(past, 0), last), dim=1)
    rows = log_rows(model.target, tokens[0].numpy(), new.shape[1])
    layers = (_layer(read), _layer(tokens))
    return SimpleNamespace(logits=rows[None], past_key_values=layers, exit_query_cache=query_cache)


def _layer(tokens: Any) -> tuple[Any, Any]:
    keys = tokens[:, None, :, None].double()
    return keys, keys


def _held(past: Any, layer: int) -> Any:
    import torch

    if past is None or len(past) <= layer:
        return torch.zeros((1, 0), dtype=torch.long)
    return past[layer][0][:, 0, :, 0].long()


__getattr__ = made_by(__name__, verify=_verify)
