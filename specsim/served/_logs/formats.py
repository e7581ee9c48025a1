"""The texts in a line of a served log, whichever server wrote it.

A line is a response, alone or as `response` or `body` beside its request, or a list of responses;
`specsim.traces._responses` has the formats. A token is identified by its id, where there is one
("token_id:123" is one), else by its string, and by its bytes where the string cannot show them.
"""

import reprlib
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from specsim.traces._responses import (
    Column,
    Logged,
    id_in,
    number,
    read_end,
    read_logprobs,
)

#: The id of a token, its bytes, or its string.
Token = int | bytes | str
#: Fields of which a response has one.
RESPONSES = ("choices", "meta_info", "completion_probabilities")


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
        if not any(name in response for name in RESPONSES):
            raise ValueError(f"no response: neither {', nor '.join(RESPONSES)}")
        parameters = _parameters(one, response)
        for choice in response.get("choices", [response]):
            yield _text(choice, response, parameters)


def _response(record: dict[str, Any]) -> dict[str, Any]:
    """The response in a line: the object itself, or one inside it."""
    inside = (record.get(name) for name in ("response", "body"))
    inner = next((one for one in inside if isinstance(one, dict)), None)
    return record if inner is None or any(name in record for name in RESPONSES) else _response(inner)


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


def _text(choice: dict[str, Any], response: dict[str, Any], parameters: dict[str, Any]) -> Text:
    chosen = choice is not response
    if chosen and not isinstance(choice.get("logprobs") or {}, dict):
        raise ValueError(f"logprobs are {reprlib.repr(choice['logprobs'])}, not an object")
    logged = read_logprobs(choice)
    finish, stopped_by = read_end(choice)
    if not isinstance(finish, str | None):
        raise ValueError(f"finish_reason is {reprlib.repr(finish)}, not a string")
    metrics = (response.get("metrics") or {}).get("speculative_decoding") or {} if chosen else {}
    name = (response if chosen else response.get("meta_info", {})).get("id")
    return Text(
        places=None if logged is None else _places(logged),
        extra=logged is not None and logged.completions,
        spare=int(chosen and logged is not None and not logged.completions),
        parameters=parameters,
        finish=finish,
        stopped_by=stopped_by,
        accepted=_steps(metrics.get("per_step_accepted")),
        identity=None if name is None else (str(name), str(choice.get("index"))),
    )


def _places(logged: Logged) -> list[Place]:
    values = (None if value is None else number(value) for value in logged.own.logprobs)
    own = zip(_tokens(logged.own), values, strict=True)
    listed = [*zip(_tokens(logged.listed), map(number, logged.listed.logprobs), strict=True)]
    lists = (listed[first:end] or None for first, end in pairwise(logged.ends))
    return [Place(*one, top) for one, top in zip(own, lists, strict=True)]


def _tokens(column: Column) -> Iterator[Token]:
    none = [None] * len(column.logprobs)
    return map(_token, column.strings or none, column.ids or none, column.entries or none)


def _token(string: Any, given: Any, entry: dict[str, Any] | None) -> Token:
    if type(given) is int:
        return int(given)
    if not isinstance(string, str):
        what = f"{reprlib.repr(string)}, not a string"
        if given is not None:
            what = f"{reprlib.repr(given)}, not an integer"
        raise ValueError(f"a token is {what}")
    if (found := id_in(string)) is not None:
        return found
    if entry and "\ufffd" in string and isinstance(written := entry.get("bytes"), list):  # a piece of UTF-8
        return bytes(written)
    return string


def _steps(accepted: Any) -> list[int] | None:
    if not isinstance(accepted, Sequence) or not all(type(one) is int and one >= 0 for one in accepted):
        return None
    return list(accepted)
