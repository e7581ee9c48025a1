"""How a request is written for OpenAI-compatible servers, which differ in what they accept."""

from dataclasses import dataclass, replace
from typing import Any

from specsim.core._files import read_table
from specsim.engines._planted.grammar import with_bans, written
from specsim.engines._planted.requests import BANS, PENALTIES, FailedError, Request, Sampling
from specsim.engines._planted.served_pair import Pair


@dataclass(frozen=True)
class Dialect:
    """A way to write requests: prompts as token ids or as text, parameters that OpenAI does not have, whether
    token ids are asked for, and whether it is a chat, whose one message is the prompt.

    Servers have defaults of their own, such as a min-p of 0.05, so parameters without effect are sent too."""

    name: str
    token_ids: bool = False
    more_parameters: bool = False
    returned_ids: bool = False
    chat: bool = False


#: The best one first; a server that refuses it is sent the next.
DIALECTS = tuple(Dialect(**one) for one in read_table("servers")["dialects"])
TOKEN_IDS = DIALECTS[1]
#: The same for prompts that have no ids here.
TEXT_DIALECTS = (replace(DIALECTS[2], name="text, ids returned", returned_ids=True), *DIALECTS[2:4])
#: More tokens than a text has, since penalties of llama.cpp look 64 back by default.
WHOLE = 2**16
#: llama.cpp processes rows in another order, unless it is given the one of `_planted/processing.py`.
SAMPLERS = ["dry", "temperature", "top_k", "top_p", "min_p", "typ_p", "top_n_sigma", "xtc"]


def fields_of(
    request: Request, prompt: Any, model: Any, dialect: Dialect, software: str, pair: Pair | None = None
) -> dict[str, Any]:
    """The fields of `request`, its prompt as ids or text, for `pair` served by `software`, where known."""
    sampling, llama = request.sampling, software.startswith("llama.cpp")
    given: dict[str, Any] = {
        "model": model,
        "prompt": prompt,
        "max_tokens": request.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "n": request.n if request.n > 1 else None,
        "seed": request.seed,
        "stop": list(sampling.stop) or None,
        "logit_bias": {str(token): bias for token, bias in sampling.logit_bias} or None,
        "stop_token_ids": list(sampling.stop_ids) or None,
        "min_tokens": min(sampling.min_tokens, request.max_tokens) or None,
        "allowed_token_ids": list(sampling.allowed_token_ids) or None,
        "bad_words": [pair.decode(word) for word in sampling.bad_words if pair] or None,
        # 0 turns them off in llama.cpp
        "logprobs": 1 if sampling.logprobs == 0 and llama else sampling.logprobs,
    }
    if dialect.more_parameters or sampling.top_k is not None:
        given["top_k"] = -1 if sampling.top_k is None else sampling.top_k
    if dialect.more_parameters or sampling.min_p:
        given["min_p"] = sampling.min_p
    given |= sampling.rare
    if dialect.returned_ids:
        given |= {"return_token_ids": True, "return_tokens_as_token_ids": True}
    penalties = {name: getattr(sampling, name) for name in PENALTIES}
    if not dialect.more_parameters and sampling.repetition_penalty == 1.0:
        del penalties["repetition_penalty"]  # all servers know the others
    if llama:
        given["grammar"] = grammar_of(pair, sampling) if pair and sampling.acting & {*BANS} else None
        sent = any(getattr(sampling.filled, name) is not None for name in PENALTIES)
        given["samplers"] = ["penalties"] * sent + SAMPLERS
        given["repeat_penalty"] = penalties.pop("repetition_penalty")
        given["repeat_last_n"] = (sampling.penalty_last_n or WHOLE) if sent else None
        if sampling.dry_multiplier:
            given["dry_penalty_last_n"] = sampling.dry_penalty_last_n or WHOLE
    else:
        given["penalty_last_n"] = sampling.penalty_last_n
        if pair and sampling.grammar:
            form = written(sampling.grammar, pair)
            given |= {"ebnf": form} if software == "sglang" else {"structured_outputs": {"grammar": form}}
    given |= penalties
    if dialect.chat:
        del given["prompt"]
        given["messages"] = [{"role": "user", "content": prompt}]
        given |= {"logprobs": sampling.logprobs is not None, "top_logprobs": sampling.logprobs or None}
    return {name: x for name, x in given.items() if x is not None and name not in sampling.left_out}


def grammar_of(pair: Pair, sampling: Sampling, *, lark: bool = False) -> str:
    """What is banned, and a grammar, in llama.cpp's form, or llguidance's with ids. Raises FailedError."""
    if (words := pair.target.words) > 64 or any(len(word) > 2 for word in sampling.bad_words):
        raise FailedError("refused", "bad_words: a grammar has at most 64 words here, and pairs of them")
    return written(with_bans(sampling, words), pair, lark)
