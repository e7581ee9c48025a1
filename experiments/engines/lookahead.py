"""Lookahead decoding: drafts are n-grams that a window of guesses left in a pool; there is no draft model.

`lade/decoding.py`, read at eed010d:

    jacobi_sample_multilevel(self, input_ids[1, L], logits_processor, stopping_criteria, logits_warper, …,
                             eos_token_id, attention_mask) -> tokens[1, ≥ L + n]

`self` is the model: `jforward_multilevel` reads the text, the window and the guesses in one call. The adapter
gives it one whose cache has the tokens as its keys. Drafts are proposals of probability 1; several are tried
at a place, without the mass of those that were rejected. The settings are the module's, in `CONFIG_MAP`.
"""

from types import SimpleNamespace
from typing import Any

from experiments.engines._models import log_rows
from experiments.engines._origins import Clone, engines, made_by, seeded_random
from specsim.adapters import Verifier
from specsim.models import Model

ORIGIN = Clone("hao-ai-lab/LookaheadDecoding")
LEVEL, WINDOW, GUESSES = 3, 3, 3


def adapt(jacobi_sample_multilevel: engines.Function) -> Verifier:
    """Make a decoder of any function with the signature above."""

    @engines.decoder_for()
    def decode(request: engines.Request) -> list[int]:
        import torch

        start, length = len(request.prompt), len(request.prompt) + request.max_new_tokens
        with engines.seeded_torch(request.rng), seeded_random(request.rng):
            tokens = jacobi_sample_multilevel(
                _Network(request.target),
                torch.tensor([list(request.prompt)]),
                logits_processor=[],
                stopping_criteria=_Length(length),
                logits_warper=_AsTheyAre(),
                eos_token_id=request.eos,
                output_scores=False,
                return_dict_in_generate=False,
                attention_mask=torch.ones(1, start),
            )
        return engines.until_eos(tokens[0, start:length].tolist(), request.eos)

    return decode


def _verify() -> Verifier:
    """Adapt the code of the clone. Raises EngineMissing without it."""
    given: dict[str, Any] = {"transformers.generation.utils": {}}  # names that later versions have no more
    module = ORIGIN.part("lade.decoding", given=given)
    module.CONFIG_MAP.update(LEVEL=LEVEL, WINDOW_SIZE=WINDOW, GUESS_SET_SIZE=GUESSES, POOL_FROM_PROMPT=1)
    return adapt(module.jacobi_sample_multilevel)


class _AsTheyAre(list[Any]):
    """Warpers that change no logits."""

    def __call__(self, _: Any, logits: Any) -> Any:
        return logits


class _Length(list[Any]):
    """A criterion that stops at a length; what is longer is cut by the adapter."""

    def __init__(self, length: int):
        super().__init__()
        self.length = length

    def __call__(self, input_ids: Any, _: Any) -> bool:
        return bool(input_ids.shape[1] >= self.length)


class _Network:
    """`model` as the loop calls it."""

    config = SimpleNamespace(is_encoder_decoder=False)
    generation_config = SimpleNamespace(
        pad_token_id=None,
        eos_token_id=None,
        output_scores=False,
        output_attentions=False,
        output_hidden_states=False,
        return_dict_in_generate=False,
    )

    def __init__(self, model: Model):
        self.model, self.vocab_size = model, model.vocab_size

    def prepare_inputs_for_generation(self, input_ids: Any, **named: Any) -> dict[str, Any]:
        """The whole text; the loop takes the part that the cache does not hold."""
        import torch

        return {"input_ids": input_ids, "position_ids": torch.arange(input_ids.shape[1])[None]}

    def _update_model_kwargs_for_generation(self, outputs: Any, named: Any, **_: Any) -> dict[str, Any]:
        import torch

        mask = torch.cat((named["attention_mask"], torch.ones(1, 1)), dim=1)
        return {**named, "past_key_values": outputs.past_key_values, "attention_mask": mask}

    def jforward_multilevel(
        self,
        input_ids: Any,
        past_key_values: Any,
        past_tokens: Any,
        guess_tokens: Any,
        fill_level: int,
        guess_size: int,
        **_: Any,
    ) -> SimpleNamespace:
        """Logits after the text, after every token of the window's last level, and after every guess."""
        import torch

        held = [] if past_key_values is None else past_key_values[0][0][0, 0, :, 0].long().tolist()
        text, guesses = [*held, *input_ids[0].tolist()], list(guess_tokens or [])
        level = past_tokens[fill_level if past_tokens[-1] is None else LEVEL - 2]
        after = [
            [*text, *guesses[start:end]]
            for start in range(0, len(guesses), guess_size)
            for end in range(start + 1, start + guess_size + 1)
        ]
        window = [token for tokens in past_tokens if tokens is not None for token in tokens]
        keys = torch.tensor([*text, *window, *guesses]).double()[None, None, :, None]

        def rows(histories: list[list[int]]) -> Any:
            return torch.cat([log_rows(self.model, history, 1) for history in histories])[None]

        return SimpleNamespace(
            out_logits=log_rows(self.model, text, 1),
            inp_logits=rows([[*text, token] for token in level]),
            guess_logits=rows(after) if after else None,
            past_key_values=[(keys, keys.clone())],
            kvcache_len=len(text),
            step_len=keys.shape[2],
        )


__getattr__ = made_by(__name__, verify=_verify)
