"""gpt-fast: speculative decoding of one sequence in PyTorch.

`generate.py`, read at 32971d3:

    generate(model, prompt[L], max_new_tokens, batch_size, *, interactive, draft_model, speculate_k)
        -> (tokens[1, L + max_new_tokens], counts)
    speculative_decode(model, draft_model, cur_token, input_pos, speculate_k) -> tokens[n + 1]

A model is called with tokens and their positions. `decoder` runs the whole loop; `verifier` the second
function alone, with drafted tokens and rows that are given, in bfloat16, the default precision.

Known issues: since batched generation came in, drafted tokens are [γ, 1] where [γ] is expected (`:102`), and
every speculative call raises; the coins have the dtype of the probabilities (`:117`), and a bfloat16 coin is
0 with probability 2^-9, so that impossible tokens pass.
"""

from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np

from experiments.engines._models import log_rows
from experiments.engines._origins import Clone, engines, made_by, row_by_row
from specsim.adapters import Verifier
from specsim.models import Model

ORIGIN = Clone("pytorch-labs/gpt-fast")
GAMMA = 3


def adapt(generate: engines.Function) -> Verifier:
    """Make a decoder of any function with the signature of `generate`."""

    @engines.decoder_for()
    def decode(request: engines.Request) -> list[int]:
        import torch

        with engines.seeded_torch(request.rng):
            tokens, _ = generate(
                _Network(request.target),
                torch.tensor(list(request.prompt), dtype=torch.int),
                request.max_new_tokens,
                1,
                interactive=False,
                draft_model=_Network(request.draft),
                speculate_k=GAMMA,
            )
        return engines.until_eos(tokens[0, len(request.prompt) :].tolist(), request.eos)

    return decode


def adapt_step(module: Any) -> Verifier:
    """Make a verifier of the module's `speculative_decode`, whose drafting is replaced by what is given."""

    def step(drafted: Any, p: Any, q: Any) -> list[int]:
        import torch

        module.decode_n_tokens = lambda *_, **__: (list(drafted.int()[:, None]), list(q))
        given = torch.zeros(1, dtype=torch.int)
        tokens = module.speculative_decode(lambda *_: p.log()[None], lambda *_: None, given, 0, len(drafted))
        return tokens.tolist()

    return row_by_row(step, ("bfloat16",))


def _module() -> Any:
    """The module of the clone. Raises EngineMissing without it."""
    module = ORIGIN.part("generate", given={"model": {}, "tokenizer": {}})
    import torch

    torch.backends.cuda.sdp_kernel = _no_kernel  # deprecated: it warns in every call
    return module


@contextmanager
def _no_kernel(**_: Any) -> Any:
    """Chooses no kernel: these models have no attention."""
    yield


class _Network:
    """`model` with a cache by position: what follows the positions of a call is overwritten later."""

    def __init__(self, model: Model):
        self.model, self.config = model, SimpleNamespace(block_size=4096)

    def setup_caches(self, max_batch_size: int, max_seq_length: int) -> None:
        """An empty cache."""
        self.held = np.zeros(max_seq_length, dtype=np.int64)

    def __call__(self, tokens: Any, input_pos: Any) -> Any:
        positions = input_pos.numpy()
        self.held[positions] = tokens[0].numpy()
        return log_rows(self.model, self.held[: positions[-1] + 1], len(positions))[None]


__getattr__ = made_by(
    __name__, verify=lambda: adapt(_module().generate), bfloat16=lambda: adapt_step(_module())
)
