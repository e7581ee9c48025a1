"""The answers of OpenAI-compatible servers, checked field by field: nothing that a server says is trusted."""

import math
import reprlib
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from typing import Any

from specsim.core._json import parse_json
from specsim.engines._planted.requests import Completion, FailedError, Request
from specsim.engines._planted.served_pair import Pair
from specsim.served._prometheus import COUNTERS, TIMES, read_series
from specsim.traces._responses import STRANGE, id_in, read_drafts, read_logprobs, token_ids

#: The most bytes of an answer without a text, and of one with: some, and more for each entry of its lists.
MOST_BYTES, LEAST_BYTES, ENTRY_BYTES = 2**22, 2**20, 512
#: Entries of a list that a server may give whatever was asked for, and characters of a reason to end.
MOST_LISTED, LONGEST = 21, 64
#: What is read of a server's series, and in how many parts of its unit.
SERIES = {name: (counted, 1.0) for name, counted in COUNTERS.items()} | TIMES


class GarbageError(FailedError):
    """An answer that is not what the protocol demands, or a text that has no tokens."""

    def __init__(self, text: str, kind: str = "garbage"):
        super().__init__(kind, text)


def read_json(body: bytes) -> dict[str, Any]:
    """The object in `body`. Raises GarbageError for all else, as for NaN."""
    try:
        found = parse_json(body, unique=False, finite=True)
    except ValueError as error:
        raise GarbageError(f"not JSON: {error}") from None
    if not isinstance(found, dict):
        raise GarbageError(f"{type(found).__name__} in place of an object")
    return found


def most_bytes(request: Request) -> int:
    """The most bytes of JSON that answer a request: what they become takes many times their memory."""
    entries = 2 + (0 if request.sampling.logprobs is None else _most_listed(request))
    return LEAST_BYTES + ENTRY_BYTES * (len(request.prompt) + request.n * request.max_tokens * entries)


def _most_listed(request: Request) -> int:
    """A list has the emitted token too, and some servers have lists of a length of their own."""
    return max(MOST_LISTED, (request.sampling.logprobs or 0) + 1)


def read_completions(
    answer: dict[str, Any], request: Request, pair: Pair, seconds: float
) -> list[Completion]:
    """The completions in an answer; the first has what is reported of all drafts. Raises GarbageError."""
    found = []
    for place, (about, choice) in enumerate(read_choices(answer, request, seconds)):
        where, finish = f"choice {place}", about["finish"]
        logprobs, top, named = _read_logprobs(choice, request, pair, f"{where}: logprobs")
        tokens = _tokens(choice, named, pair, where)
        if len(tokens) > request.max_tokens or not (tokens or finish == "stop"):
            raise GarbageError(f"{where}: {len(tokens)} tokens; expected 1 to {request.max_tokens}")
        if logprobs is not None:
            if len(logprobs) != len(tokens) and not (finish == "stop" and len(logprobs) > len(tokens)):
                raise GarbageError(f"{where}: {len(logprobs)} log-probabilities of {len(tokens)} tokens")
            logprobs, top = logprobs[: len(tokens)], top and top[: len(tokens)]
        top = top if request.sampling.logprobs else None
        found.append(Completion(tokens=tokens, logprobs=logprobs, top=top, **about))
    return sorted(found, key=lambda one: one.index)


def read_choices(
    answer: dict[str, Any], request: Request, seconds: float
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """The fields of `Completion` but tokens, and the object, of each text. Raises GarbageError."""
    choices = answer.get("choices")
    if not isinstance(choices, list) or len(choices) != request.n:
        raise GarbageError(f"choices: {reprlib.repr(choices)}; expected a list of {request.n}")
    found: set[int] = set()
    for place, choice in enumerate(choices):
        if not isinstance(choice, dict):
            raise GarbageError(f"choice {place}: {reprlib.repr(choice)} is not an object")
        index = choice.get("index", place)
        if type(index) is not int or index in found or not 0 <= index < request.n:
            what = f"index {reprlib.repr(index)}"
            raise GarbageError(f"choice {place}: {what} is a duplicate, or not below n = {request.n}")
        found.add(index)
        if isinstance(reason := choice.get("finish_reason"), str) and len(reason) > LONGEST:
            raise GarbageError(
                f"choice {place}: finish_reason is {reprlib.repr(reason)}, {len(reason):,} characters; "
                f"expected at most {LONGEST}"
            )
        finish = reason if isinstance(reason, str) else None
        about = {"number": request.number, "index": index, "finish": finish, "seconds": seconds}
        yield about | read_drafts(answer, choice, index)._asdict(), choice


def _tokens(choice: dict[str, Any], named: list[int] | None, pair: Pair, where: str) -> tuple[int, ...]:
    """The tokens of a choice: its ids where the server gives them, else those of its text."""
    given = token_ids(choice)
    given = named if given is None else given
    if given is None:
        message = choice.get("message")
        text = message.get("content") if isinstance(message, dict) else choice.get("text")
        if not isinstance(text, str):
            raise GarbageError(f"{where}: neither token ids nor a text, but {reprlib.repr(text)}")
        try:
            given = pair.encode(text)
        except ValueError as error:
            raise GarbageError(f"{where}: {error}", "unmappable") from None
    if not isinstance(given, list):
        raise GarbageError(f"{where}: token ids are {reprlib.repr(given)}, not a list")
    size = pair.target.vocab_size
    for i, token in enumerate(given):
        if type(token) is not int or not 0 <= token < size:
            raise GarbageError(f"{where}: token {i} is {reprlib.repr(token)}, not an id below {size}")
    return tuple(given)


def _read_logprobs(
    choice: dict[str, Any], request: Request, pair: Pair, where: str
) -> tuple[tuple[float | None, ...] | None, tuple[dict[int, float], ...] | None, list[int] | None]:
    """Log-probabilities, lists of the most probable tokens, and token ids: each None if it is not there."""
    if (given := choice.get("logprobs")) is None:
        return None, None, None
    if not isinstance(given, dict):
        raise GarbageError(f"{where}: {reprlib.repr(given)} is not an object")
    columns = {name: values for name, values in given.items() if isinstance(values, list)}
    try:
        logged = read_logprobs({"logprobs": columns}, strict=False)
    except (ValueError, *STRANGE) as error:
        raise GarbageError(f"{where} are not in a form that servers use ({error!r:.100})") from None
    if logged is None:
        if given.get("token_logprobs") is not None:
            raise GarbageError(f"{where}: {reprlib.repr(given['token_logprobs'])} is not a list")
        return None, None, None
    own, listed, ends = logged.own, logged.listed, logged.ends
    for what, count, most in (
        ("tokens", len(own.logprobs), request.max_tokens + 1),  # the end of a text may be among them
        ("entries in a list", max((b - a for a, b in pairwise(ends)), default=0), _most_listed(request)),
    ):
        if count > most:
            raise GarbageError(f"{where}: {count:,} {what}; expected at most {most}, as asked for")
    logprobs = tuple(
        None if value is None and logged.completions else _float(value, where) for value in own.logprobs
    )
    names = zip(listed.strings or (), listed.ids or [None] * len(listed.logprobs), strict=True)
    entries = [
        (_token(*name, pair, where), _float(value, where))
        for name, value in zip(names, listed.logprobs, strict=True)
    ]
    lists = tuple(dict(entries[first:end]) for first, end in pairwise(ends))
    ids = own.ids or [id_in(name) if isinstance(name, str) else None for name in own.strings or ()]
    known = [i for i in ids if type(i) is int]
    return logprobs, lists if entries else None, known if 0 < len(known) == len(ids) else None


def _token(name: Any, given: Any, pair: Pair, where: str) -> int:
    """The id of a token that is given beside it, as "token_id:7", or as text."""
    if type(given) is int:
        if not -(2**63) <= given < 2**63:
            raise GarbageError(f"{where}: {reprlib.repr(given)} is too large for the id of a token")
        return given
    if not isinstance(name, str):
        raise GarbageError(f"{where}: a token is {reprlib.repr(name)}, not a string")
    if (found := id_in(name)) is not None:
        return found
    try:
        tokens = pair.encode(name)
    except ValueError as error:
        raise GarbageError(f"{where}: {error}", "unmappable") from None
    if len(tokens) != 1:
        raise GarbageError(f"{where}: {reprlib.repr(name)} is {len(tokens)} tokens, not one", "unmappable")
    return tokens[0]


def _float(value: Any, where: str) -> float:
    with suppress(OverflowError):  # of a whole number that no float can hold
        if type(value) in (int, float) and math.isfinite(value):
            return float(value)
    raise GarbageError(f"{where}: {reprlib.repr(value)} is not a finite number")


def read_counters(text: str) -> dict[str, int] | None:
    """The counters and the times of a server's Prometheus text, added up over labels; None without."""
    found: dict[str, int] = {}
    for line in text.splitlines():
        try:
            series = read_series(line, SERIES)
        except ValueError:
            continue
        if series is not None and 0 <= series.value < 2**53:
            counted, unit = SERIES[series.name]
            found[counted] = found.get(counted, 0) + round(series.value * unit)
    return found or None


def error_message(body: bytes) -> str:
    """What the body of an error says: the message in JSON of OpenAI's form, else its beginning."""
    try:
        found: Any = read_json(body if len(body) <= LEAST_BYTES else b"")
        found = found.get("error", found.get("message", found))
        found = found.get("message", found) if isinstance(found, dict) else found
    except GarbageError:
        found = body[:200].decode("utf-8", "replace")
    return " ".join(str(found).split())[:300]
