"""The texts in a line of a served log, whichever server wrote it, and which of them can be tested.

A line is a response, alone or as `response` or `body` beside its request, or a list of responses;
docs/traces.md has the formats. An id identifies a token where there is one ("token_id:123" is
one), else its string, or its bytes where the string cannot show them.

The drawn tokens must not decide what is tested: leaving out texts, or places, for what came there would bias
the rest. A text is left out for what its request says, and for what the server logs."""

import re
import reprlib
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from specsim.core._files import read_table
from specsim.traces._responses import Column, Logged, id_in, number, read_end, read_logprobs

#: A token's id, bytes, or string.
Token = int | bytes | str
#: Fields; a response has one of them.
RESPONSES = ("choices", "meta_info", "completion_probabilities")
UNLOGGED = "no log-probabilities"


class Place(NamedTuple):
    """An emitted token, its log-probability, and the list of its row, each None where it is not logged."""

    token: Token
    logprob: float | None
    top: list[tuple[Token, float]] | None


class Text(NamedTuple):
    """The tokens of one choice. What was not logged is None."""

    places: list[Place] | None
    extra: bool  #: whether each list has the emitted token too, where it is not among the most probable ones
    spare: int  #: how many entries of a list may have given way to the emitted token
    parameters: dict[str, Any]  #: those of the request, and what else the line says about it
    finish: str | None  #: why it ended: "stop", "length", "abort", …; None if it continues, "" if unknown
    stopped_by: str | int | None = None  #: the string or the token that ended it
    accepted: list[int] | None = None  #: drafted tokens accepted in each step after the first token
    identity: Any = None  #: the id of the response, and the number of the choice


def read_texts(record: Any) -> Iterator[Text]:
    """The texts of a line. Raises ValueError, TypeError, KeyError or the like unless it is a response."""
    for one in record if isinstance(record, list) else [record]:
        response = _response(one)
        if not any(name in response for name in RESPONSES):
            raise ValueError(f"has none of the fields {', '.join(RESPONSES)}; log whole responses")
        parameters = _parameters(one, response)
        yield from (_text(choice, response, parameters) for choice in response.get("choices", [response]))


def _response(record: dict[str, Any]) -> dict[str, Any]:
    """The response in a line, or in an object inside it."""
    inside = (record.get(name) for name in ("response", "body"))
    inner = next((one for one in inside if isinstance(one, dict)), None)
    return record if inner is None or any(name in record for name in RESPONSES) else _response(inner)


def _parameters(record: dict[str, Any], response: dict[str, Any]) -> dict[str, Any]:
    """What the line says of its request, wherever servers and proxies write it."""
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
    steps: Any = metrics.get("per_step_accepted")
    counted = isinstance(steps, Sequence) and all(type(one) is int and one >= 0 for one in steps)
    return Text(
        places=None if logged is None else _places(logged),
        extra=logged is not None and logged.completions,
        spare=int(chosen and logged is not None and not logged.completions),
        parameters=parameters,
        finish=finish,
        stopped_by=stopped_by,
        accepted=list(steps) if counted else None,
        identity=None if name is None else (str(name), str(choice.get("index"))),
    )


def _places(logged: Logged) -> list[Place]:
    values = (None if value is None else number(value) for value in logged.own.logprobs)
    own = zip(_tokens(logged.own), values, strict=True)
    listed = [*zip(_tokens(logged.listed), map(number, logged.listed.logprobs), strict=True)]
    lists = (listed[first:end] or None for first, end in pairwise(logged.ends))
    return [Place(*one, _once(one[0], top)) for one, top in zip(own, lists, strict=True)]


def _once(token: Token, top: list[tuple[Token, float]] | None) -> list[tuple[Token, float]] | None:
    """A list without the emitted token's second entry, which some logs append."""
    appended = top and isinstance(token, int) and top[-1][0] == token and token in dict(top[:-1])
    return top[:-1] if top and appended else top


def _tokens(column: Column) -> Iterator[Token]:
    none = [None] * len(column.logprobs)
    return map(_token, column.strings or none, column.ids or none, column.entries or none)


def _token(string: Any, given: Any, entry: dict[str, Any] | None) -> Token:
    if type(given) is int:
        return int(given)
    if not isinstance(string, str):
        wrong, wanted = (string, "a string") if given is None else (given, "an integer")
        raise ValueError(f"a token is {reprlib.repr(wrong)}, not {wanted}")
    if (found := id_in(string)) is not None:
        return found
    if entry and "\ufffd" in string and isinstance(written := entry.get("bytes"), list):  # a piece of UTF-8
        return bytes(written)
    return string


# Which texts can be tested, and what is missing from them.

#: Parameters that change a row, with the values that do not.
PARAMETERS = read_table("servers")
BEFORE = "logged before: the same response, or the same long text"
#: Seeds that mean a random one.
RANDOM_SEEDS = (None, -1, 2**32 - 1)
#: Endings that were not drawn: the text could have continued.
CUT = (None, "length", "abort", "error", "cancelled")
#: Log-probability of a text below which independent draws do not give it twice.
NOT_TWICE = -40.0
#: A token that ends texts, as written: "</s>", "<|im_end|>", or nothing.
END = re.compile(r"(<[^<>\s]+>)?")


class Conditions:
    """Decides text by text; `processed` log-probabilities are those after temperature and truncation."""

    def __init__(self, processed: bool, temperature: float | None) -> None:
        self.processed, self.temperature = processed, temperature
        self._seeds: dict[int, str] = {}
        self._known: set[Any] = set()

    def greedy(self, text: Text) -> bool:
        return self._temperature(text) == 0

    def objection(self, text: Text, place: str) -> str:
        """Why a text cannot be tested; empty if it can be."""
        if text.places is None:
            return UNLOGGED
        return (
            ("" if self.greedy(text) else self._repeated(text, place))
            or _not_drawn(text)
            or _without_lists(text)
            or self._another_law(text, self._temperature(text))
        )

    def _temperature(self, text: Text) -> float | None:
        value = text.parameters.get("temperature")
        value = self.temperature if value is None else value
        if value is not None and (type(value) not in (int, float) or not value >= 0):
            raise ValueError(f"temperature: {reprlib.repr(value)} is not a number ≥ 0")
        return value

    def _repeated(self, text: Text, place: str) -> str:
        if text.identity is not None and text.finish is not None:
            if text.identity in self._known:
                return BEFORE
            self._known.add(text.identity)
        for name in ("seed", "sampling_seed"):
            seed = text.parameters.get(name)
            if type(seed) is not int or seed in RANDOM_SEEDS:
                continue
            if self._seeds.setdefault(seed, place) != place:
                return "drawn with the seed of an earlier request, so not independent of it"
        drawn = [(place.token, place.logprob) for place in text.places or []]
        if sum(logprob or 0.0 for _, logprob in drawn) < NOT_TWICE:
            found = hash(tuple(drawn))
            if found in self._known:
                return BEFORE
            self._known.add(found)
        return ""

    def _another_law(self, text: Text, temperature: float | None) -> str:
        """Why the log-probabilities are not those of the distribution that was sampled."""
        if self.processed:
            return ""
        if temperature is None:
            return "temperature not known; give --temperature"
        kinds = ("change", "truncation") if temperature > 0 else ("change",)
        changed = ["temperature"] * (temperature not in (0, 1))
        changed += [
            name
            for kind in kinds
            for name, neutral in PARAMETERS[kind].items()
            if text.parameters.get(name) not in (None, *neutral)
        ]
        return f"raw log-probabilities, and {changed[0]} changes the distribution" if changed else ""


def _not_drawn(text: Text) -> str:
    parameters, places = text.parameters, text.places or []
    best, count = parameters.get("best_of"), parameters.get("n") or 1
    if parameters.get("echo") or (text.extra and places and places[0].logprob is None):
        return "begins with its prompt, which was not drawn"
    if (best is not None and best != count and best != 1) or parameters.get("use_beam_search"):
        return "chosen among several"
    return ""


def _without_lists(text: Text) -> str:
    listed = [place.top is not None for place in text.places or []]
    if listed and not any(listed):
        return "no lists of the most probable tokens"
    return "" if all(listed) else "lists at some places only"


def unseen_tokens(text: Text) -> int:
    """How many tokens at the end of a text the log lacks at most: its last one, or those of a stop string."""
    if text.finish in CUT:
        return 0
    if text.places:
        last = text.places[-1].token
        written = last.decode("utf-8", "replace") if isinstance(last, bytes) else last
        if written == text.stopped_by or (isinstance(written, str) and END.fullmatch(written)):
            return 0
    stops = text.parameters.get("stop")
    strings = [one for one in (stops if isinstance(stops, list) else [stops]) if isinstance(one, str)]
    if isinstance(text.stopped_by, str):
        strings.append(text.stopped_by)
    return max([1, *(len(string.encode("utf-8", "replace")) for string in strings)])
