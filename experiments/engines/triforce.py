"""TriForce: two levels of speculation, a small model that drafts for the target with a retrieval cache.

`utils/decoding.py`, read at 164c8c0:

    TriForce(tokenizer, graph_engine, input_ids[1, L], gamma, max_len, top_k, top_p, temperature, verbose)

which says its tokens to `spec_stream`. `graph_engine` runs the target (`inference`), the same with the
retrieval cache (`graph_verify`), and the small model (`graph_draft_inference`). Here the draft takes the
place of the retrieval cache, and the small model says all tokens alike.

Known issues: in the lower level a rejected token is replaced by a sample of the middle model's p, not of the
residual, while the upper level takes it as drawn from p (`:212`).
"""

from types import SimpleNamespace
from typing import Any

from experiments.engines._models import log_rows
from experiments.engines._origins import Clone, engines, made_by
from specsim.adapters import Verifier

ORIGIN = Clone("Infini-AI-Lab/TriForce")
GAMMA = 3


def adapt(module: Any) -> Verifier:
    """Make a decoder of the module `utils.decoding`, whose function `spec_stream` is replaced."""

    @engines.decoder_for()
    def decode(request: engines.Request) -> list[int]:
        import torch

        said: list[int] = []
        module.spec_stream = lambda token, *_: said.append(int(token))
        module.print = lambda *_, **__: None
        with engines.seeded_torch(request.rng):
            module.TriForce(
                SimpleNamespace(eos_token_id=-1 if request.eos is None else request.eos),
                _Graph(request),
                torch.tensor([list(request.prompt)]),
                gamma=GAMMA,
                max_len=request.max_new_tokens,
                top_k=-1,
                top_p=0.0,
                temperature=1.0,
                verbose=True,
            )
        return engines.until_eos(said[: request.max_new_tokens], request.eos)

    return decode


class _Cache:
    """What the target has read; the loop shortens it by setting `seq_len`."""

    def __init__(self) -> None:
        self.tokens: list[int] = []

    @property
    def seq_len(self) -> int:
        return len(self.tokens)

    @seq_len.setter
    def seq_len(self, length: int) -> None:
        del self.tokens[length:]

    def reset(self) -> None:
        self.tokens.clear()

    def print_status(self) -> None:
        """It has nothing to say."""


class _Graph:
    """The three models, without the caches of the lower level, whose rows do not depend on them."""

    def __init__(self, request: engines.Request):
        self.target, self.middle, self.cache = request.target, request.draft, _Cache()
        unused = SimpleNamespace(
            reset=_nothing, print_status=_nothing, evict_for_spec=_nothing, start_size=0, recent_size=0
        )
        model = SimpleNamespace(device="cpu")
        self.engine = SimpleNamespace(
            kv_cache=self.cache, graph_cache=unused, draft_cache=unused, model=model
        )
        self.graph_draft_prefill = self.update_graph_cache = _nothing

    def inference(self, input_ids: Any) -> Any:
        """Logits [1, T, V] of the target after each of `input_ids` [1, T], which are stored."""
        self.cache.tokens += input_ids[0].tolist()
        return log_rows(self.target, self.cache.tokens, input_ids.shape[1])[None]

    def graph_draft_inference(self, input_ids: Any, gamma_offset: int) -> Any:
        """The pmf of the small model."""
        import torch

        return torch.full((self.target.vocab_size,), 1.0 / self.target.vocab_size)

    def graph_verify(self, input_ids: Any, position_ids: Any) -> Any:
        """The pmfs [T, V] of the middle model; places that are not drafted yet hold other ids than tokens."""
        ids = input_ids[0].clamp(max=self.target.vocab_size - 1).tolist()
        return log_rows(self.middle, [*self.cache.tokens, *ids], len(ids)).softmax(-1)


def _nothing(*_: Any, **__: Any) -> None:
    """Does nothing, in the place of a cache's methods."""


GIVEN: dict[str, Any] = {"utils.misc": {}}
__getattr__ = made_by(
    __name__, verify=lambda: adapt(ORIGIN.part("utils.decoding", "utils.sampling", given=GIVEN))
)
