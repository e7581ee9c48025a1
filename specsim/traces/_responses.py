"""One reader of the responses of servers: OpenAI's interface, vLLM, SGLang, llama.cpp, TensorRT-LLM.

docs/traces.md has the fields in which a choice, or a response that is one, has log-probabilities. They become
columns with the values of the JSON: whoever asks for them checks their types. What no server
writes raises ValueError or one of `STRANGE`."""

import math
import reprlib
from collections.abc import Mapping, Sequence
from itertools import accumulate, chain
from operator import itemgetter
from typing import Any, NamedTuple

from specsim.core._files import read_table

#: What names a token by its id, and the most digits of an id.
ID, MOST_DIGITS = "token_id:", 18
#: What reading raises, apart from ValueError, for JSON of another kind.
STRANGE = (KeyError, TypeError, AttributeError, IndexError)
TOKEN, LOGPROB = itemgetter("token"), itemgetter("logprob")
#: Why a text ended, where llama.cpp has another word than "stop", "length" and "abort".
FINISHES = {"limit": "length", "eos": "stop", "word": "stop", "none": None}
#: The names of each count, the present one first.
COUNTS: dict[str, list[str]] = read_table("servers")["counts"]


class Column(NamedTuple):
    """Tokens and their log-probabilities, as written; a token has a string, an id, or both."""

    strings: list[Any] | None
    ids: list[Any] | None
    logprobs: Any
    entries: list[dict[str, Any]] | None = None  #: the objects that they come from

    def part(self, first: int, end: int) -> "Column":
        return Column(*(None if column is None else column[first:end] for column in self))


class Logged(NamedTuple):
    """The emitted tokens of a text; the list of the i-th is `listed`, from ends[i] to ends[i + 1]."""

    own: Column
    ends: list[int]
    listed: Column
    completions: bool = False  #: whether lists may have the emitted token beside the most probable ones

    def part(self, first: int, end: int) -> "Logged":
        if end - first == len(self.own.logprobs):
            return self
        ends = self.ends[first : end + 1]
        moved = [one - ends[0] for one in ends]
        return Logged(self.own.part(first, end), moved, self.listed.part(ends[0], ends[-1]), self.completions)


def read_logprobs(choice: dict[str, Any], strict: bool = True) -> Logged | None:
    """The log-probabilities of a choice, or of a response that is one; None without. If `strict`, a
    completion has as many tokens and lists as log-probabilities: MLX-LM cuts off tokens."""
    given, info = choice.get("logprobs"), choice.get("meta_info")
    if isinstance(given, dict):
        if given.get("content") is not None:
            return read_content(given["content"])
        missing = given.get("tokens" if strict else "token_logprobs") is None
        return None if missing else _completions(given, strict)
    if "completion_probabilities" in choice:
        return read_content(choice["completion_probabilities"])
    if isinstance(info, dict) and info.get("output_token_logprobs") is not None:
        return _sglang(info)
    return None


def read_content(content: list[dict[str, Any]]) -> Logged:
    """The log-probabilities of a chat, or of llama.cpp."""
    if any(entry.get("probs") is not None for entry in content):
        content = [entry if entry.get("probs") is None else _renamed(entry) for entry in content]
    lists: list[Any] = [entry.get("top_logprobs") or entry.get("top_probs") or () for entry in content]
    if any(type(one) is dict for one in lists):
        lists = [[{"token": token, "logprob": one[token]} for token in one] for one in lists]
    entries = [*chain.from_iterable(lists)]
    return Logged(_column(content), [0, *accumulate(map(len, lists))], _column(entries))


def _renamed(entry: dict[str, Any]) -> dict[str, Any]:
    """An element of the form before 2025 in the names of today."""
    listed = [{"token": one["tok_str"], "prob": one["prob"]} for one in entry["probs"]]
    return {"token": entry["content"], "logprob": None, "top_probs": listed}


def _column(entries: list[dict[str, Any]]) -> Column:
    try:
        strings, logprobs = [*map(TOKEN, entries)], [*map(LOGPROB, entries)]
    except KeyError:
        strings = [entry.get("token") for entry in entries]
        logprobs = [_log(entry["prob"]) if "prob" in entry else entry["logprob"] for entry in entries]
    ids = [entry.get("id") for entry in entries]
    return Column(strings, None if ids.count(None) == len(ids) else ids, logprobs, entries)


def _completions(given: dict[str, Any], strict: bool) -> Logged:
    own, names = given["token_logprobs"], given.get("tokens", [])
    lists = given.get("top_logprobs") or [None] * len(own)
    if strict and not len(names) == len(own) == len(lists):
        raise ValueError(f"{len(names)} tokens, {len(own)} token_logprobs, {len(lists)} top_logprobs")
    listed = [one or {} for one in lists]
    column = Column([*chain.from_iterable(listed)], None, [*chain.from_iterable(map(dict.values, listed))])
    return Logged(Column(names, None, own), [0, *accumulate(map(len, listed))], column, True)


def _sglang(info: dict[str, Any]) -> Logged:
    own = info["output_token_logprobs"]
    lists = info.get("output_top_logprobs") or [None] * len(own)
    if len(lists) != len(own):
        raise ValueError(f"{len(own)} output_token_logprobs, {len(lists)} output_top_logprobs")
    listed = [one or () for one in lists]
    sides = own, [*chain.from_iterable(listed)]
    given, others = (Column(None, [one[1] for one in some], [one[0] for one in some]) for some in sides)
    return Logged(given, [0, *accumulate(map(len, listed))], others, True)


def number(value: Any) -> float:
    """A log-probability as a float. Raises ValueError for another value."""
    if type(value) not in (int, float):
        raise ValueError(f"a log-probability is {reprlib.repr(value)}, not a number")
    try:
        return float(value)
    except OverflowError:
        raise ValueError("a log-probability has too many digits") from None


def _log(probability: Any) -> float:
    """The logarithm of a probability; NaN for a negative one."""
    value = number(probability)
    return math.log(value) if value > 0 else -math.inf if value == 0 else math.nan


def id_in(name: str) -> int | None:
    """The id in a name such as "token_id:7"; None for another name."""
    digits = name[len(ID) :]
    return int(digits) if name.startswith(ID) and digits.isdecimal() and len(digits) <= MOST_DIGITS else None


def token_ids(choice: dict[str, Any]) -> Any:
    """The ids of the emitted tokens; None if the server does not give them."""
    return first_of(choice, ("token_ids", "tokens"))


def read_end(choice: dict[str, Any]) -> tuple[Any, Any]:
    """Why a text ended, None if it continues and "" if unknown; and the string or token that ended it."""
    if "completion_probabilities" in choice:
        finish = choice.get("stop_type", "")
        goes_on = choice.get("stop") is False
        return None if goes_on else FINISHES.get(finish, finish), choice.get("stopping_word") or None
    given = choice if "finish_reason" in choice else choice.get("meta_info", choice)
    finish = given.get("finish_reason", "")
    if isinstance(finish, dict):
        return finish["type"], finish.get("matched")
    return finish, choice.get("stop_reason", choice.get("matched_stop"))


class Drafts(NamedTuple):
    """What a server reports of drafts; None where it reports nothing."""

    drafted: int | None = None
    accepted: int | None = None
    steps: int | None = None


def read_drafts(answer: dict[str, Any], choice: dict[str, Any], index: int) -> Drafts:
    """The drafts of text `index`; the first has those of the request. SGLang has `meta_info` in each choice,
    or `sglext`; llama.cpp `timings`; vLLM `metrics.speculative_decoding`; OpenAI `usage`."""
    own = _drafts(_object(choice, "meta_info"), _object(choice, "speculative_decoding"))
    if own is not None or index:
        return own or Drafts()
    places = ("timings",), ("metrics", "speculative_decoding"), ("speculative_decoding",)
    others = ("sglext", "spec_tokens_details"), ("usage", "completion_tokens_details")
    return _drafts(*(_object(answer, *names) for names in (*places, *others))) or Drafts()


def _drafts(*holders: Mapping[str, Any]) -> Drafts | None:
    """The counts of the first holder with drafted and accepted tokens."""
    for holder in holders:
        found = {name: first_of(holder, names) for name, names in COUNTS.items()}
        counts = {name: x for name, x in found.items() if type(x) is int and x >= 0}
        if {"accepted", "rejected"} <= counts.keys():
            counts.setdefault("drafted", counts["accepted"] + counts["rejected"])
        if {"accepted", "drafted"} <= counts.keys():
            return Drafts(counts["drafted"], counts["accepted"], counts.get("steps"))
    return None


def first_of(values: Mapping[str, Any], names: Sequence[str]) -> Any:
    """The first value under one of `names` that is not null, else None."""
    return next((values[name] for name in names if values.get(name) is not None), None)


def _object(given: Any, *names: str) -> dict[str, Any]:
    """The object at a path of names; else an empty one."""
    for name in names:
        given = given.get(name) if isinstance(given, dict) else None
    return given if isinstance(given, dict) else {}
