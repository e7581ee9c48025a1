"""What the server serves: a target and a draft, and how their tokens are written as text."""

from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar

import numpy as np

from specsim.core._types import Floats, Ints
from specsim.engines._planted.folder import Planted
from specsim.engines._planted.law import Law, Memory
from specsim.engines._planted.requests import Request
from specsim.models import Model
from specsim.models._trained_pairs import default_pair


class ModelLaw:
    """A model as a distribution that reads the last tokens."""

    openers: tuple[int, ...] = ()
    memory: Memory | None = None
    experts = 0

    def __init__(self, model: Model):
        self.model = model
        self.vocab_size = self.words = model.vocab_size
        self.start = model.order
        self.offsets = tuple(range(1, model.order + 1))

    def scores(self, contexts: Ints) -> Floats:
        with np.errstate(divide="ignore"):
            return np.log(self.model.rows(np.ascontiguousarray(contexts[:, ::-1])))


@dataclass(frozen=True)
class BytePair:
    """Two models of bytes. A text is written in Latin-1, so that every byte is one character."""

    target: ModelLaw
    draft: ModelLaw
    digest: str
    context: int = 2**20
    heads: str | None = None
    defaults: ClassVar[dict[str, float]] = {}

    def encode(self, text: str) -> list[int]:
        try:
            return list(text.encode("latin-1"))
        except UnicodeEncodeError as error:
            raise ValueError(
                f"text, character {error.start}: {text[error.start]!r} is not in Latin-1, in which each "
                "byte is one character"
            ) from None

    def decode(self, tokens: Any) -> str:
        return bytes(int(token) for token in tokens).decode("latin-1")


#: What is served: checkpoints with their distributions, or the bundled models.
Pair = Planted | BytePair
ReadingLaw = Law | ModelLaw


def ngram_pair() -> BytePair:
    target, draft = default_pair()
    return BytePair(ModelLaw(target), ModelLaw(draft), str(target.provenance.get("sha256", "ngram")))


def check_request(pair: Pair, request: Request) -> None:
    """Raise ValueError, saying what is allowed, for a request that cannot be served."""
    prompt, law = request.prompt, pair.target
    if law.openers and (not prompt or prompt[0] not in law.openers):
        raise ValueError("prompt: does not begin with an opener, which this model reads")
    for place in range(bool(law.openers), len(prompt)):
        if not 0 <= prompt[place] < law.words:
            raise ValueError(f"prompt, position {place}: {prompt[place]} is outside [0, {law.words})")
    least = max(1, law.start, pair.draft.start)
    if len(prompt) < least:
        raise ValueError(f"prompt: {len(prompt)} tokens; this model reads {least}, so give at least as many")
    asked = request.sampling
    known = [*asked.stop_ids, *asked.allowed_token_ids, *chain(*asked.bad_words), *dict(asked.logit_bias)]
    known += chain(*map(dict, asked.grammar))
    if outside := [token for token in known if token >= law.vocab_size]:
        names = "logit_bias, stop_ids, allowed_token_ids, bad_words, grammar"
        raise ValueError(f"{names}: {outside[0]} is outside [0, {law.vocab_size})")
    if request.max_tokens < 1 or request.n < 1:
        raise ValueError(f"max_tokens {request.max_tokens} and n {request.n} must be at least 1")
    if len(prompt) + request.max_tokens > pair.context:
        raise ValueError(
            f"max_tokens: {request.max_tokens} after a prompt of {len(prompt)} tokens is more than the "
            f"{pair.context} positions of the model"
        )
    if request.seed is not None and request.seed < 0:
        raise ValueError(f"seed: {request.seed} is negative")
