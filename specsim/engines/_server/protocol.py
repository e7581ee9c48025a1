"""OpenAI's protocol of completions: from the JSON of a request to requests, and from completions to JSON."""

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from specsim.core._files import read_table
from specsim.core._json import parse_json
from specsim.engines._planted import grammar
from specsim.engines._planted.requests import LIMITS, Completion, Request, Sampling
from specsim.engines._planted.served_pair import Pair, check_request

#: What a request may have in addition to the parameters that are read, with the values that change nothing.
IGNORED: dict[str, list[Any]] = read_table("servers")["ignored"]
READ: list[str] = read_table("servers")["read"]
#: What a request asks for that says nothing.
PLAIN = Sampling(logprobs=None)
#: The most texts of one HTTP request, and the most tokens and entries of lists: an answer takes memory.
MOST_TEXTS, MOST_ENTRIES = 4096, 2**20


class ApiError(Exception):
    def __init__(self, status: int, message: str, parameter: str | None = None):
        super().__init__(message)
        self.status, self.parameter = status, parameter


@dataclass(frozen=True)
class Call:
    """One HTTP request: a `Request` for each prompt, and the form of the answer."""

    requests: tuple[Request, ...]
    stream: bool
    token_ids: bool
    names_as_ids: bool
    chat: bool


def read_call(body: bytes, pair: Pair, model: str, chat: bool = False) -> Call:
    """The call in the JSON `body`, perhaps of a chat. Raises ApiError for one that cannot be served."""
    try:
        given = parse_json(body, unique=False)
    except ValueError as error:
        raise ApiError(400, f"the body is not JSON: {error}") from None
    if not isinstance(given, dict):
        raise ApiError(400, f"the body is {type(given).__name__}, not an object of parameters")
    if chat:
        given = _as_completion(given)
    for name, value in given.items():
        if name in IGNORED and value not in (None, *IGNORED[name]):
            raise ApiError(400, f"{name}: {value!r} is not supported", name)
        if name not in IGNORED and name not in READ:
            raise ApiError(400, f"{name}: not a parameter", name)
    if given.get("model") not in (None, model):
        raise ApiError(404, f"model: {given['model']!r} is not served; {model!r} is", "model")
    try:
        requests = _read_requests(given, pair)
    except ValueError as error:  # its message begins with the parameter
        raise ApiError(400, str(error), str(error).partition(":")[0]) from None
    flags = "stream", "return_token_ids", "return_tokens_as_token_ids"
    stream, ids, names = (given.get(name) is True for name in flags)
    return Call(requests, stream, ids, names, chat)


def _as_completion(given: dict[str, Any]) -> dict[str, Any]:
    """The parameters of a completion whose prompt is what the messages of a chat say, one after the other."""
    messages, given = given.get("messages"), {name: given[name] for name in given.keys() - {"messages"}}
    if not (isinstance(messages, list) and messages and all(isinstance(one, dict) for one in messages)):
        raise ApiError(400, "messages: expected a list of objects", "messages")
    if not all(isinstance(one.get("content"), str) for one in messages):
        raise ApiError(400, "messages: expected a text as the content of each", "messages")
    listed = given.pop("top_logprobs", None) or 0
    given["logprobs"] = listed if given.get("logprobs") is True else None
    given["max_tokens"] = given.pop("max_completion_tokens", given.get("max_tokens"))
    return given | {"prompt": "".join(one["content"] for one in messages)}


def _read_requests(given: dict[str, Any], pair: Pair) -> tuple[Request, ...]:
    given = pair.defaults | {name: value for name, value in given.items() if value is not None}
    if given.get("top_k") in (0, -1):  # which keep all tokens, as in vLLM
        del given["top_k"]
    numbers = {
        name: _number(given, name, getattr(PLAIN, name), type(least)) for name, (least, *_) in LIMITS.items()
    }
    bad = _prompts(given["bad_words"], "bad_words") if given.get("bad_words") else []
    form = given.get("structured_outputs")
    sampling = Sampling(
        **numbers,
        stop=_stop(given),
        logit_bias=_biases(given),
        stop_ids=_tokens(given.get("stop_token_ids") or [], pair, "stop_token_ids"),
        allowed_token_ids=_tokens(given.get("allowed_token_ids") or [], pair, "allowed_token_ids"),
        bad_words=tuple(_tokens(word, pair, "bad_words") for word in bad),
        grammar=() if form is None else grammar.read(form, pair),
    )
    prompts = [_tokens(prompt, pair) for prompt in _prompts(given.get("prompt"))]
    counts = {"max_tokens": 16, "n": 1, "seed": None}
    many, n, seed = (_number(given, name, default, int) for name, default in counts.items())
    if len(prompts) * n > MOST_TEXTS:
        raise ApiError(400, f"{len(prompts)} prompts with n = {n}: at most {MOST_TEXTS} texts a request", "n")
    requests = tuple(Request(i, prompt, many, seed, n, sampling) for i, prompt in enumerate(prompts))
    for request in requests:
        check_request(pair, request)
    entries = len(prompts) * n * many * (1 + (sampling.logprobs or 0))
    if entries > MOST_ENTRIES:
        what = f"{entries:,} tokens and entries of lists: at most {MOST_ENTRIES:,} a request"
        raise ApiError(400, f"max_tokens: {many} are {what}", "max_tokens")
    return requests


def _number(given: dict[str, Any], name: str, default: Any, kind: Any = float) -> Any:
    if (value := given.get(name)) is None:
        return default
    most, what = (2**63 - 1, "whole") if kind is int else (sys.float_info.max, "finite")
    if isinstance(value, bool) or not isinstance(value, int | kind) or not abs(value) <= most:
        raise ApiError(400, f"{name}: {value!r} is not a {what} number{' of 64 bits' * (kind is int)}", name)
    return kind(value)


def _stop(given: dict[str, Any]) -> tuple[str, ...]:
    stop = given.get("stop")
    strings = [] if stop is None else [stop] if isinstance(stop, str) else stop
    if not isinstance(strings, list) or not all(isinstance(string, str) for string in strings):
        raise ApiError(400, f"stop: {stop!r} is neither a string nor a list of strings", "stop")
    return tuple(strings)


def _biases(given: dict[str, Any]) -> tuple[tuple[int, float], ...]:
    biases = given.get("logit_bias") or {}
    if not isinstance(biases, dict) or not all(one.isascii() and one.isdecimal() for one in biases):
        raise ApiError(400, "logit_bias: expected an object of numbers by token id", "logit_bias")
    return tuple((int(token[:19]), _number(biases, token, 0.0)) for token in biases)


def _prompts(prompt: Any, name: str = "prompt") -> list[Any]:
    """The prompts, or other words: a text, token ids, or a list of either."""
    if isinstance(prompt, str):
        return [prompt]
    if isinstance(prompt, list) and prompt:
        return prompt if isinstance(prompt[0], str | list) else [prompt]
    raise ApiError(400, f"{name}: expected a text, a list of token ids, or a list of either", name)


def _tokens(text: Any, pair: Pair, name: str = "prompt") -> tuple[int, ...]:
    if isinstance(text, str):
        try:
            return tuple(pair.encode(text))
        except ValueError as error:
            raise ApiError(400, f"{name}: {error}", name) from None
    if isinstance(text, list) and all(type(token) is int for token in text):
        return tuple(text)
    raise ApiError(400, f"{name}: expected a text or a list of token ids", name)


def write_answer(call: Call, answers: Sequence[Completion], pair: Pair, model: str, name: str) -> Any:
    """The JSON of a finished call; `answers` are all completions of its requests."""
    ordered = sorted(answers, key=lambda answer: (answer.number, answer.index))
    return {
        "id": name,
        "object": "text_completion" if not call.chat else "chat.completion" + ".chunk" * call.stream,
        "created": int(time.time()),
        "model": model,
        "choices": [_choice(call, index, answer, pair) for index, answer in enumerate(ordered)],
        "usage": _usage(call, ordered),
    }


def write_events(
    call: Call, answers: Sequence[Completion], pair: Pair, model: str, name: str
) -> Iterator[Any]:
    """The JSON of the events of a stream: each text whole, since it is sent when it is finished."""
    whole = write_answer(call, answers, pair, model, name)
    choices, usage = whole["choices"], whole.pop("usage")
    for choice in choices:
        if call.chat:
            choice["delta"] = choice.pop("message")
        yield whole | {"choices": [choice]}
    yield whole | {"choices": [], "usage": usage}


def _choice(call: Call, index: int, answer: Completion, pair: Pair) -> dict[str, Any]:
    request = call.requests[answer.number]
    text = pair.decode([token for token in answer.tokens if token != pair.target.words])
    cuts = [text.find(string) for string in request.sampling.stop]
    ids = {"token_ids": list(answer.tokens), "prompt_token_ids": list(request.prompt)}
    text = text[: min((cut for cut in cuts if cut >= 0), default=len(text))]
    said = {"message": {"role": "assistant", "content": text}} if call.chat else {"text": text}
    return {
        "index": index,
        **said,
        "logprobs": None if answer.logprobs is None else _logprobs(call, answer, pair),
        "finish_reason": answer.finish,
    } | (ids if call.token_ids else {})


def _logprobs(call: Call, answer: Completion, pair: Pair) -> dict[str, Any]:
    def name(token: int) -> str:
        return f"token_id:{token}" if call.names_as_ids else pair.decode([token])

    lists = [{name(x): value for x, value in top.items()} for top in answer.top or ()]
    if call.chat:
        lists = lists or [{}] * len(answer.tokens)
        content = [
            {"token": name(x), "logprob": value}
            | {"top_logprobs": [{"token": one, "logprob": its} for one, its in top.items()]}
            for x, value, top in zip(answer.tokens, answer.logprobs or (), lists, strict=True)
        ]
        return {"content": content}
    return {
        "tokens": [name(token) for token in answer.tokens],
        "token_logprobs": list(answer.logprobs or ()),
        "top_logprobs": lists if answer.top is not None else None,
        "text_offset": [len(pair.decode(answer.tokens[:i])) for i in range(len(answer.tokens))],
    }


def _usage(call: Call, answers: Sequence[Completion]) -> dict[str, Any]:
    prompt = sum(len(request.prompt) for request in call.requests)
    made = sum(len(answer.tokens) for answer in answers)
    usage = {"prompt_tokens": prompt, "completion_tokens": made, "total_tokens": prompt + made}
    if not answers or answers[0].drafted is None:
        return usage
    drafted, accepted = (sum(getattr(a, name) for a in answers) for name in ("drafted", "accepted"))
    details = {"accepted_prediction_tokens": accepted, "rejected_prediction_tokens": drafted - accepted}
    return usage | {"completion_tokens_details": details}
