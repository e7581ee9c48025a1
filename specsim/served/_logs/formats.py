"""The texts in a line of a served log, whichever server wrote it.

A line is a response, alone or as `response` or `body` beside its request, or a list of responses. Its format
is recognised by its fields:

- `choices[].logprobs.content[]` with `token`, `logprob`, `top_logprobs`: chats of OpenAI, vLLM, SGLang,
  llama.cpp;
- `choices[].logprobs` with `tokens`, `token_logprobs`, `top_logprobs`: completions of OpenAI and vLLM;
- `meta_info.output_token_logprobs` and `output_top_logprobs`, of [logprob, id, text]: SGLang;
- `completion_probabilities[]` with `id`, `token`, `logprob`, `top_logprobs`; or `prob` and `top_probs`; or,
  before 2025, `content` and `probs[]` of `tok_str` and `prob`: llama.cpp.

A token is identified by its id, where there is one ("token_id:123" is one), else by its string, and by its
bytes where the string cannot show them.
"""

import math
import reprlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from specsim.traces._jsonl.rows import ID, MOST_DIGITS

#: The id of a token, its bytes, or its string.
Token = int | bytes | str
#: Fields of which a response has one.
RESPONSES = {"choices", "meta_info", "completion_probabilities"}
#: How the end of a text is told where a format has another word than "stop", "length" and "abort".
FINISHES = {"limit": "length", "eos": "stop", "word": "stop", "none": None}


class Place(NamedTuple):
    """An emitted token, its log-probability, and the list of its row, each None where it is not logged."""

    token: Token
    logprob: float | None
    top: list[tuple[Token, float]] | None


class Text(NamedTuple):
    """The tokens of one choice.

    Parameters
    ----------
    places : list of Place, or None without log-probabilities
    extra : bool
        Whether the emitted token is in each list, beside the most probable ones if it is none of them.
    spare : int
        How many entries of a list may have given way to the emitted token.
    parameters : dict
        The parameters of the request and what else the line says about it.
    finish : str or None
        Why the text ended: "stop", "length", "abort", …; None if it goes on, "" if it is not known.
    stopped_by : str, int or None
        The string or the token that ended it, if logged.
    accepted : list of int or None
        The drafted tokens accepted in each step after the first token, if logged.
    identity : object
        The id of the response and the number of the choice, if logged.
    """

    places: list[Place] | None
    extra: bool
    spare: int
    parameters: dict[str, Any]
    finish: str | None
    stopped_by: str | int | None = None
    accepted: list[int] | None = None
    identity: Any = None


def read_texts(record: Any) -> Iterator[Text]:
    """The texts of a line. Raises ValueError, TypeError, KeyError or the like for what is no response."""
    responses = record if isinstance(record, list) else [record]
    for one in responses:
        response = _response(one)
        parameters = _parameters(one, response)
        if "choices" in response:
            for choice in response["choices"]:
                yield _choice(choice, response, parameters)
        elif "meta_info" in response:
            yield _sglang(response["meta_info"], parameters)
        elif "completion_probabilities" in response:
            yield _llama(response, parameters)
        else:
            raise ValueError("no response: neither choices, nor meta_info, nor completion_probabilities")


def _response(record: dict[str, Any]) -> dict[str, Any]:
    """The response in a line: the object itself, or one inside it."""
    inside = (record.get(name) for name in ("response", "body"))
    inner = next((one for one in inside if isinstance(one, dict)), None)
    return record if inner is None or not RESPONSES.isdisjoint(record) else _response(inner)


def _parameters(record: dict[str, Any], response: dict[str, Any]) -> dict[str, Any]:
    """What the line says of its request, in all places where servers and proxies write it."""
    found: dict[str, Any] = {}
    for outer in (response, record):
        names = ("generation_settings", "params", "parameters", "request", "body")
        for holder in (outer, *(outer.get(name) for name in names)):
            if not isinstance(holder, dict):
                continue
            found |= holder
            if "choices" in holder:  # then these are not what was asked for
                del found["choices"]
                found.pop("logprobs", None)
            for name in ("body", "sampling_params", "parameters", "extra_body"):
                if isinstance(holder.get(name), dict):
                    found |= holder[name]
    if isinstance(response.get("generation_settings"), dict):  # what the server used, defaults included
        found |= response["generation_settings"]
    return found


# --- formats ------------------------------------------------------------------------------------------------


def _choice(choice: dict[str, Any], response: dict[str, Any], parameters: dict[str, Any]) -> Text:
    logprobs = choice.get("logprobs") or {}
    places, extra, spare = None, False, 0
    if logprobs.get("content") is not None:
        places, spare = [_entry(entry) for entry in logprobs["content"]], 1
    elif logprobs.get("tokens") is not None:
        places, extra = _completion(logprobs), True
    metrics = (response.get("metrics") or {}).get("speculative_decoding") or {}
    number = response.get("id")
    return Text(
        places=places,
        extra=extra,
        spare=spare,
        parameters=parameters,
        finish=_finish(choice.get("finish_reason", "")),
        stopped_by=choice.get("stop_reason", choice.get("matched_stop")),
        accepted=_steps(metrics.get("per_step_accepted")),
        identity=None if number is None else (str(number), str(choice.get("index"))),
    )


def _entry(entry: dict[str, Any]) -> Place:
    """An element of a chat's `content`, or of llama.cpp's `completion_probabilities`."""
    if "probs" in entry:
        probs = [(_token(one["tok_str"]), _log(one["prob"])) for one in entry["probs"]]
        return Place(_token(entry["content"]), None, probs or None)
    listed = entry.get("top_logprobs", entry.get("top_probs"))
    top = None if listed is None else [(_identity(one), _real(_logprob(one))) for one in listed]
    return Place(_identity(entry), _logprob(entry), top or None)


def _completion(logprobs: dict[str, Any]) -> list[Place]:
    tokens, own = logprobs["tokens"], logprobs["token_logprobs"]
    lists = logprobs.get("top_logprobs") or [None] * len(tokens)
    if not len(tokens) == len(own) == len(lists):
        raise ValueError(f"{len(tokens)} tokens, {len(own)} token_logprobs, {len(lists)} top_logprobs")
    found = []
    for token, logprob, top in zip(tokens, own, lists, strict=True):
        listed = [(_token(one), _real(value)) for one, value in top.items()] if top else None
        found.append(Place(_token(token), _number(logprob), listed))
    return found


def _sglang(info: dict[str, Any], parameters: dict[str, Any]) -> Text:
    logged, places = info.get("output_token_logprobs"), None
    if logged is not None:
        lists = info.get("output_top_logprobs") or [None] * len(logged)
        if len(lists) != len(logged):
            raise ValueError(f"{len(logged)} output_token_logprobs, {len(lists)} output_top_logprobs")
        places = []
        for own, top in zip(logged, lists, strict=True):
            listed: list[tuple[Token, float]] = [(_id(one[1]), _real(one[0])) for one in top or []]
            places.append(Place(_id(own[1]), _number(own[0]), listed or None))
    finish = info.get("finish_reason", "")
    matched = finish.get("matched") if isinstance(finish, dict) else None
    number = info.get("id")
    return Text(
        places=places,
        extra=False,
        spare=0,
        parameters=parameters,
        finish=_finish(finish["type"] if isinstance(finish, dict) else finish),
        stopped_by=matched,
        identity=None if number is None else (str(number), 0),
    )


def _llama(response: dict[str, Any], parameters: dict[str, Any]) -> Text:
    places = [_entry(entry) for entry in response["completion_probabilities"]]
    finish = response.get("stop_type", "")
    return Text(
        places=places,
        extra=False,
        spare=0,
        parameters=parameters,
        finish=None if response.get("stop") is False else _finish(FINISHES.get(finish, finish)),
        stopped_by=response.get("stopping_word") or None,
    )


# --- fields -------------------------------------------------------------------------------------------------


def _identity(entry: dict[str, Any]) -> Token:
    if type(entry.get("id")) is int:
        return int(entry["id"])
    token, written = _token(entry["token"]), entry.get("bytes")
    if isinstance(token, str) and "\ufffd" in token and isinstance(written, list):  # a piece of UTF-8
        return bytes(written)
    return token


def _token(text: Any) -> Token:
    if not isinstance(text, str):
        raise ValueError(f"a token is {reprlib.repr(text)}, not a string")
    number = text[len(ID) :]
    return int(number) if text.startswith(ID) and number.isdecimal() and len(number) <= MOST_DIGITS else text


def _id(number: Any) -> int:
    if type(number) is not int:
        raise ValueError(f"the id of a token is {reprlib.repr(number)}, not an integer")
    return number


def _logprob(entry: dict[str, Any]) -> Any:
    return _log(entry["prob"]) if "prob" in entry else _number(entry["logprob"])


def _number(value: Any) -> float | None:
    """A log-probability, None where there is none."""
    if value is None:
        return None
    if type(value) not in (int, float):
        raise ValueError(f"a log-probability is {reprlib.repr(value)}, not a number")
    try:
        return float(value)
    except OverflowError:
        raise ValueError("a log-probability has too many digits") from None


def _real(value: Any) -> float:
    number = _number(value)
    if number is None:
        raise ValueError("a listed log-probability is null")
    return number


def _log(probability: Any) -> float:
    """The logarithm of a probability; NaN for a negative one, which the audit names."""
    value = _real(probability)
    return math.log(value) if value > 0 else -math.inf if value == 0 else math.nan


def _finish(reason: Any) -> str | None:
    if reason is not None and not isinstance(reason, str):
        raise ValueError(f"finish_reason is {reprlib.repr(reason)}, not a string")
    return reason


def _steps(accepted: Any) -> list[int] | None:
    if not isinstance(accepted, Sequence) or not all(type(one) is int and one >= 0 for one in accepted):
        return None
    return list(accepted)
