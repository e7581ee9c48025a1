"""lucidrains/speculative-decoding: a whole decoding loop in PyTorch, on the index as `speculative-decoding`.

`speculative_decoding/speculative_decoding.py`, read at 0.2.0:

    speculative_decoding(net, small_net, prompt[B, L], seq_len, gamma=5, temperature=1., filter_thres=0.9,
    lenience=1.,
                         pad_id=0) -> (tokens[B, seq_len - L], mean accepted)

    net(tokens, seq_start_pos=…, cache=…, return_cache=True) -> (logits of the tokens that were not cached,
    cache)

The adapter decodes one sequence with every token kept (`filter_thres=0`), and cuts at `eos`, which the loop
does not know. Known issues: accepts unless u > p/q; divides the residual by its sum without a guard; with
`lenience` the residual does not use the scaled q.
"""

from typing import Any

from experiments.engines._origins import Wheel, engines, made_by
from specsim.adapters import Verifier
from specsim.models import Model

ORIGIN = Wheel("speculative-decoding", "speculative_decoding")


def adapt(speculative_decoding: engines.Function) -> Verifier:
    """Make a decoder of any function with the signature of `speculative_decoding`."""

    @engines.decoder_for()
    def decode(request: engines.Request) -> list[int]:
        import torch

        with engines.seeded_torch(request.rng):
            tokens, _ = speculative_decoding(
                _network(request.target),
                _network(request.draft),
                torch.tensor([list(request.prompt)]),
                len(request.prompt) + request.max_new_tokens,
                filter_thres=0.0,
            )
        return engines.until_eos(tokens[0].tolist(), request.eos)

    return decode


def _network(model: Model) -> engines.Function:
    """`model` as the loop calls it; the cache holds the tokens, float64 [1, 1, T, 1]."""
    import torch

    def forward(tokens: Any, cache: Any = None, **_: Any) -> Any:
        held = torch.empty((1, 1, 0, 1), dtype=torch.float64) if cache is None else cache[0]
        new = tokens[:, held.shape[-2] :]
        held = torch.cat((held, new[:, None, :, None].double()), dim=-2)
        rows = engines.last_rows(model, held[0, 0, :, 0].numpy(), new.shape[1])
        return torch.from_numpy(rows).log().float()[None], (held, None)

    return forward


__getattr__ = made_by(
    __name__,
    verify=engines.installed(
        adapt, "speculative_decoding:speculative_decoding", install="pip install torch speculative-decoding"
    ),
)
