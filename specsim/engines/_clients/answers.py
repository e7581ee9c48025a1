"""The answers of OpenAI-compatible servers, checked field by field: nothing that a server says is trusted."""

import json
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from specsim.engines._planted.requests import Completion, Request
from specsim.engines._planted.served_pair import Pair
from specsim.served._prometheus import COUNTERS, read_series


class GarbageError(ValueError):
    """An answer that is not what the protocol demands."""


class UnmappableError(ValueError):
    """A text that has no tokens."""


def read_json(body: bytes) -> dict[str, Any]:
    """The object in `body`. Raises GarbageError for anything else, NaN and infinities included."""
    try:
        found = json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise GarbageError(f"not JSON: {error}") from None
    if not isinstance(found, dict):
        raise GarbageError(f"{type(found).__name__} in place of an object")
    return found


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no number of JSON")


def read_completions(
    answer: dict[str, Any], request: Request, pair: Pair, seconds: float
) -> list[Completion]:
    """The completions in an answer to `request`. Raises GarbageError and UnmappableError.

    What the server reports of drafts for the whole request stands in its first completion."""
    found = []
    for place, (index, finish, choice) in enumerate(read_choices(answer, request)):
        logprobs, top, named = _read_logprobs(choice.get("logprobs"), pair, place)
        tokens = _tokens(choice, named, pair, place)
        if len(tokens) > request.max_tokens or not (tokens or finish == "stop"):
            raise GarbageError(
                f"choice {place}: {len(tokens)} tokens; expected 1 to {request.max_tokens}, as asked for"
            )
        if logprobs is not None:
            if len(logprobs) != len(tokens) and not (finish == "stop" and len(logprobs) > len(tokens)):
                raise GarbageError(
                    f"choice {place}: {len(logprobs)} log-probabilities of {len(tokens)} tokens"
                )
            logprobs, top = logprobs[: len(tokens)], top and top[: len(tokens)]
        if not request.sampling.logprobs:
            top = None
        drafts = read_drafts(answer, choice, index)
        found.append(
            Completion(
                request.number,
                index,
                tokens,
                logprobs,
                top,
                **drafts._asdict(),
                finish=finish,
                seconds=seconds,
            )
        )
    return sorted(found, key=lambda one: one.index)


def read_choices(
    answer: dict[str, Any], request: Request
) -> Iterator[tuple[int, str | None, dict[str, Any]]]:
    """Of each text in an answer: its index, why it ended, and its object. Raises GarbageError."""
    choices = answer.get("choices")
    if not isinstance(choices, list) or len(choices) != request.n:
        raise GarbageError(f"choices: {_short(choices)}; expected a list of {request.n}")
    found: set[int] = set()
    for place, choice in enumerate(choices):
        if not isinstance(choice, dict):
            raise GarbageError(f"choice {place}: {_short(choice)} is not an object")
        index = _int(choice.get("index", place), f"choice {place}: index")
        if index in found or not 0 <= index < request.n:
            raise GarbageError(f"choice {place}: index {index} is there twice, or not below n = {request.n}")
        found.add(index)
        reason = choice.get("finish_reason")
        yield index, reason if isinstance(reason, str) else None, choice


def _tokens(choice: dict[str, Any], named: list[int] | None, pair: Pair, place: int) -> tuple[int, ...]:
    """The tokens of a choice: its ids where the server gives them, else those of its text."""
    given = next((choice[key] for key in ("token_ids", "tokens") if choice.get(key) is not None), named)
    if given is None:
        text = choice.get("text")
        if not isinstance(text, str):
            raise GarbageError(f"choice {place}: neither token ids nor a text, but {_short(text)}")
        try:
            given = pair.encode(text)
        except ValueError as error:
            raise UnmappableError(f"choice {place}: {error}") from None
    if not isinstance(given, list):
        raise GarbageError(f"choice {place}: token ids are {_short(given)}, not a list")
    tokens = tuple(_int(token, f"choice {place}: token {i}") for i, token in enumerate(given))
    for i, token in enumerate(tokens):
        if not 0 <= token < pair.target.vocab_size:
            raise GarbageError(f"choice {place}: token {i} is {token}, not below {pair.target.vocab_size}")
    return tokens


Logprobs = tuple[float | None, ...] | None
Lists = tuple[dict[int, float], ...] | None


def _read_logprobs(given: Any, pair: Pair, place: int) -> tuple[Logprobs, Lists, list[int] | None]:
    """Log-probabilities, lists of the most probable tokens, and token ids: each None if it is not there."""
    where = f"choice {place}: logprobs"
    if given is None:
        return None, None, None
    if not isinstance(given, dict):
        raise GarbageError(f"{where}: {_short(given)} is not an object")
    if isinstance(given.get("content"), list):
        return _read_content(given["content"], pair, where)
    values = given.get("token_logprobs")
    if values is None:
        return None, None, None
    if not isinstance(values, list):
        raise GarbageError(f"{where}: token_logprobs is {_short(values)}, not a list")
    logprobs = tuple(None if value is None else _float(value, where) for value in values)
    return logprobs, _legacy_lists(given.get("top_logprobs"), pair, where), _named_ids(given.get("tokens"))


def _legacy_lists(given: Any, pair: Pair, where: str) -> Lists:
    if not isinstance(given, list) or not any(given):
        return None
    lists = []
    for entry in given:
        if not isinstance(entry, dict | None):
            raise GarbageError(f"{where}: an entry of top_logprobs is {_short(entry)}, not an object")
        lists.append(
            {_token(name, pair, where): _float(value, where) for name, value in (entry or {}).items()}
        )
    return tuple(lists)


def _read_content(content: list[Any], pair: Pair, where: str) -> tuple[Logprobs, Lists, list[int] | None]:
    """The form of chat completions, in which llama.cpp gives token ids too."""
    logprobs, lists = [], []
    for entry in content:
        if not isinstance(entry, dict):
            raise GarbageError(f"{where}: {_short(entry)} is not an object")
        logprobs.append(_float(entry.get("logprob"), where))
        top = entry.get("top_logprobs") or []
        if not isinstance(top, list) or not all(isinstance(one, dict) for one in top):
            raise GarbageError(f"{where}: top_logprobs is {_short(top)}, not a list of objects")
        lists.append({_entry_token(one, pair, where): _float(one.get("logprob"), where) for one in top})
    ids = [entry["id"] for entry in content if type(entry.get("id")) is int]
    known = bool(ids) and len(ids) == len(content)
    return tuple(logprobs), tuple(lists) if any(lists) else None, ids if known else None


def _entry_token(entry: dict[str, Any], pair: Pair, where: str) -> int:
    return entry["id"] if type(entry.get("id")) is int else _token(entry.get("token"), pair, where)


def _token(name: Any, pair: Pair, where: str) -> int:
    """The id of a token that is given as "token_id:7" or as text."""
    if not isinstance(name, str):
        raise GarbageError(f"{where}: a token is {_short(name)}, not a string")
    if (found := id_in(name)) is not None:
        return found
    try:
        tokens = pair.encode(name)
    except ValueError as error:
        raise UnmappableError(f"{where}: {error}") from None
    if len(tokens) != 1:
        raise UnmappableError(f"{where}: {_short(name)} is {len(tokens)} tokens, not one")
    return tokens[0]


def _named_ids(tokens: Any) -> list[int] | None:
    """The ids in tokens that are all given as "token_id:7"."""
    if not isinstance(tokens, list) or not tokens:
        return None
    ids = [id_in(token) if isinstance(token, str) else None for token in tokens]
    return [i for i in ids if i is not None] if None not in ids else None


def id_in(name: str) -> int | None:
    head, _, number = name.partition("token_id:")
    return int(number) if not head and number.isdecimal() and len(number) < 10 else None


class Drafts(NamedTuple):
    """What a server reports of drafts, each None where it reports nothing."""

    drafted: int | None = None
    accepted: int | None = None
    steps: int | None = None


def read_drafts(answer: dict[str, Any], choice: dict[str, Any], index: int) -> Drafts:
    """The drafts of text `index`. Those of a whole request are those of its first text.

    SGLang has `meta_info` in each choice, or `sglext` in the answer; llama.cpp `timings`; vLLM, if it is told
    to, `metrics.speculative_decoding`; OpenAI's form is `usage`."""
    sglang = "spec_num_proposed_drafts", "spec_num_correct_drafts", "spec_verify_ct"
    own = _counts(_object(choice, "meta_info"), *sglang)
    if own is not None or index:
        return own or Drafts()
    details = _object(_object(answer, "usage"), "completion_tokens_details")
    rejected = _counts(details, "rejected_prediction_tokens", "accepted_prediction_tokens")
    found = (
        _counts(_object(answer, "timings"), "draft_n", "draft_n_accepted"),
        _counts(
            _object(_object(answer, "metrics"), "speculative_decoding"),
            *("num_draft_tokens", "num_accepted_draft_tokens", "num_spec_steps"),
        ),
        _counts(_object(_object(answer, "sglext"), "spec_tokens_details"), *sglang),
        rejected and Drafts((rejected.drafted or 0) + (rejected.accepted or 0), rejected.accepted),
    )
    return next((one for one in found if one is not None), Drafts())


def _object(given: dict[str, Any], name: str) -> dict[str, Any]:
    found = given.get(name)
    return found if isinstance(found, dict) else {}


def _counts(given: dict[str, Any], drafted: str, accepted: str, steps: str = "") -> Drafts | None:
    """The counts under these names; None unless drafted and accepted tokens are there."""
    counts = [
        given[name] if type(given.get(name)) is int and given[name] >= 0 else None
        for name in (drafted, accepted, steps)
    ]
    return None if None in counts[:2] else Drafts(*counts)


def _int(value: Any, where: str) -> int:
    if type(value) is not int:
        raise GarbageError(f"{where} is {_short(value)}, not a whole number")
    return value


def _float(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise GarbageError(f"{where}: {_short(value)} is not a finite number")
    return float(value)


def _short(value: Any) -> str:
    """What was found, cut to a length that can be printed."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def read_counters(text: str) -> dict[str, int] | None:
    """The counters of speculation in the Prometheus text of a server, added up over labels; None without."""
    found: dict[str, int] = {}
    for line in text.splitlines():
        try:
            series = read_series(line, COUNTERS)
        except ValueError:
            continue
        if series is not None and 0 <= series.value < 2**53:
            counted = COUNTERS[series.name]
            found[counted] = found.get(counted, 0) + int(series.value)
    return found if {"drafted", "accepted"} <= set(found) else None


def error_message(body: bytes) -> str:
    """What the body of an error says: the message in JSON of OpenAI's form, else its beginning."""
    try:
        found: Any = read_json(body)
        found = found.get("error", found.get("message", found))
        found = found.get("message", found) if isinstance(found, dict) else found
    except GarbageError:
        found = body[:200].decode("utf-8", "replace")
    return " ".join("".join(c if c.isprintable() else " " for c in str(found)).split())[:300]
