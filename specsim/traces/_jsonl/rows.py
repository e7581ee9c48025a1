"""From lines of JSON to rows: log-probabilities as docs/importing-logs.md describes them.

msgspec parses lines where it is installed. Where it fails, or its result is refused, the standard library's
parser decides, so that results and messages are the same without it. Of a key that an object has twice both
take the last value."""

import itertools
import math
import reprlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from specsim.core._json import RefusedError, decode_line
from specsim.core._types import MOST_TOKENS, Floats, Ints, said_of
from specsim.traces import _responses

try:
    from specsim.traces._jsonl import typed
except ImportError:  # without msgspec
    typed = None  # type: ignore[assignment]

REMEDY = "log with return_tokens_as_token_ids"
UNKNOWN = "not log-probabilities as servers write them"
#: The largest log-probability: rounding may have put it above 0.
MOST = 0.01

#: A logged token: its id, or None; its string, or None.
Token = tuple[int | None, str | None]


class Rows(NamedTuple):
    """Logged rows of a line; row i lists numbers[ends[i]:ends[i + 1]], numbers of `Tokens`."""

    position: Ints  #: [n] in the line
    own: Ints  #: [n] the token that followed
    ends: Ints  #: [n + 1]
    numbers: Ints
    logprobs: Floats

    def part(self, first: int, end: int) -> "Rows":
        position, own, ends = self.position[first:end], self.own[first:end], self.ends[first : end + 1]
        listed = slice(ends[0], ends[-1])
        return Rows(position, own, ends - ends[0], self.numbers[listed], self.logprobs[listed])

    def listed(self, row: int) -> Ints:
        return self.numbers[self.ends[row] : self.ends[row + 1]]


class Text(NamedTuple):
    """Consecutive positions: of a prompt if `scored`, else generated."""

    place: str
    document: int | None
    scored: bool
    rows: Rows
    alone: bool = False  #: a line with a single position, of document 0 by default


class WithoutIdError(Exception):
    """A token is logged without an id that a trace can have, so tokens are to be numbered."""


class Tokens:
    """The tokens met, numbered as they come. Unless `strings`, their numbers are their ids, and one without
    an id raises `WithoutIdError`."""

    def __init__(self, strings: bool) -> None:
        self.strings = strings
        self.met: list[Token] = []
        self.numbers: dict[Token, int] = {}
        self.in_trace = np.empty(0, np.int64)  # by number, -1 for a token that is not
        self.texts = _Parsed(self, _token)
        self.ids = _Parsed(self, lambda key: (_id(key), None))
        self.named_ids = _Parsed(self, lambda logged: (_id(str(logged[0])), logged[1]))
        self.entries = _Parsed(self, _entry)

    def number(self, token: Token) -> int:
        if not self.strings:
            if token[0] is None or not 0 <= token[0] < MOST_TOKENS:
                raise WithoutIdError
            return token[0]
        number = self.numbers.setdefault(token, len(self.met))
        if number == len(self.met):
            self.met.append(token)
        return number

    def token(self, number: int) -> Token:
        return self.met[number] if self.strings else (number, None)

    def ids_of(self, numbers: Ints) -> Ints:
        return self.in_trace[numbers] if self.strings else numbers


class _Parsed(dict[Any, int]):
    """The numbers of tokens, by how they are logged; `parse` raises ValueError for anything else."""

    def __init__(self, tokens: Tokens, parse: Callable[[Any], Token]):
        super().__init__()
        self.tokens, self.parse = tokens, parse

    def __missing__(self, logged: Any) -> int:
        number = self[logged] = self.tokens.number(self.parse(logged))
        return number


def parse_line(line: bytes, place: str, tokens: Tokens) -> list[Text]:
    """The texts of a line. Raises ValueError naming the place."""
    # msgspec also refuses NaN, and reads integers above 2^64 as floats
    for decode, read_logprobs in typed.FORMS[tokens.strings][b'"choices"' not in line :] if typed else ():
        with suppress(ValueError, OverflowError, RecursionError, *_responses.STRANGE):
            if not line.isascii():
                line.decode()  # msgspec checks no string that it skips
            return list(_parse_texts(decode(line), read_logprobs, place, tokens))
    try:
        record = decode_line(line, unique=False)
        return list(_parse_texts(record, _responses.read_logprobs, place, tokens))
    except RefusedError as error:
        raise ValueError(f"{place}: {error}") from None
    except _responses.STRANGE as error:
        raise ValueError(f"{place}: {UNKNOWN} ({error!r})") from None


def _parse_texts(
    record: Any, read_logprobs: Callable[[Any], _responses.Logged | None], place: str, tokens: Tokens
) -> Iterator[Text]:
    document = record.get("document")
    if document is not None and type(document) is not int:
        raise ValueError(f"{place}: document {document!r} is not an integer; number the texts")
    for choice in record.get("choices", [record]):
        prompt = choice.get("prompt_logprobs") or record.get("prompt_logprobs")
        if prompt:
            ids = choice.get("prompt_token_ids") or record.get("prompt_token_ids") or [None] * len(prompt)
            yield Text(place, document, True, _read_prompt(prompt, ids, place, tokens))
            continue
        with said_of(place):
            logged = read_logprobs(choice)
        if alone := logged is None and "token" in record:
            logged = _responses.read_content([record])
        if logged is None:
            raise ValueError(
                f"{place}: has no prompt_logprobs, logprobs or token; ask the server for log-probabilities"
            )
        # the first token of an echoed prompt has none
        first = int(logged.completions and logged.own.logprobs[:1] == [None])
        read = partial(_of_logged, logged, tokens)
        yield Text(place, document, False, _rows(read, place, first, len(logged.own.logprobs)), alone)


def _read_prompt(
    prompt: list[dict[str, Any] | None], ids: list[int | None], place: str, tokens: Tokens
) -> Rows:
    if len(prompt) != len(ids):
        raise ValueError(f"{place}: {len(prompt)} prompt_logprobs and {len(ids)} prompt_token_ids")
    first = int(prompt[0] is None)
    if None in prompt[first:]:
        i = prompt.index(None, first)
        raise ValueError(f"{place}, position {i}: is null; only the first token's row may be")
    return _rows(partial(_of_prompt, prompt, ids, tokens), place, first, len(prompt))


def _rows(read: Callable[[int, int], Rows], place: str, first: int, end: int) -> Rows:
    """The rows that `read` gives for positions; the first position that it refuses is named."""
    try:
        return read(first, end)
    except ValueError as error:
        if end - first == 1:
            raise ValueError(f"{place}, position {first}: {error}") from None
        for i in range(first, end):
            _rows(read, place, i, i + 1)
        raise


# what follows reads all rows of a line at once: a loop over their entries would take most of the time


def _of_prompt(prompt: list[Any], ids: list[int | None], tokens: Tokens, first: int, end: int) -> Rows:
    rows, ids = prompt[first:end], ids[first:end]
    entries = [*itertools.chain.from_iterable(map(dict.values, rows))]
    keys: Iterable[Any] = itertools.chain.from_iterable(rows)
    scored = typed is not None and isinstance(next(iter(entries), None), typed.Scored)
    given: Any = typed.logprobs(entries) if scored else [*map(_responses.LOGPROB, entries)]
    if tokens.strings:
        decoded = (entry.decoded_token if scored else entry.get("decoded_token") for entry in entries)
        numbers = _numbers(tokens.named_ids, zip(keys, decoded, strict=True), len(entries))
    elif scored:
        numbers = np.fromiter(keys, np.int64, len(entries))
    else:
        numbers = _numbers(tokens.ids, keys, len(entries))
    ends = np.cumsum([0, *map(len, rows)])
    own = numbers[np.minimum(ends[:-1], len(entries) - 1)]
    for row in range(len(rows)) if set(ids) != {None} or not all(rows) else ():
        listed = numbers[ends[row] : ends[row + 1]].tolist()
        token = next((n for n in listed if ids[row] is None or tokens.token(n)[0] == ids[row]), None)
        if token is None:
            raise ValueError(f"the prompt's own token {ids[row]} is not listed; list it in each row")
        own[row] = token
    logprobs = _logprobs(given, numbers, tokens)
    return Rows(np.arange(first, end), own, ends, numbers, logprobs)


def _of_logged(logged: _responses.Logged, tokens: Tokens, first: int, end: int) -> Rows:
    """Rows of their most probable tokens, perhaps with their own token."""
    logged = logged.part(first, end)
    ends = np.array(logged.ends)
    numbers, own = (_numbers_of(tokens, column) for column in (logged.listed, logged.own))
    row = np.repeat(np.arange(end - first), np.diff(ends))
    keys = np.sort(row << 32 | numbers)
    if (keys[1:] == keys[:-1]).any():
        raise ValueError(f"two tokens of one row read alike; {REMEDY}")
    found = _logprobs(logged.listed.logprobs, numbers, tokens)
    given = _logprobs(logged.own.logprobs, own, tokens)
    (here,) = np.nonzero(numbers == own[row])
    found[here] = given[row[here]]
    missing = np.ones(end - first, bool)
    missing[row[here]] = False
    if missing.any():
        numbers = np.insert(numbers, ends[1:][missing], own[missing])
        found = np.insert(found, ends[1:][missing], given[missing])
        ends[1:] += np.cumsum(missing)
    return Rows(np.arange(first, end), own, ends, numbers, found)


def _numbers_of(tokens: Tokens, column: _responses.Column) -> Ints:
    names, ids, size = column.strings, column.ids, len(column.logprobs)
    if ids is None:
        return _numbers(tokens.texts, names or (), size)
    if names is not None and None in names:  # it has one elsewhere, and would be two tokens
        raise KeyError("token")
    strings = itertools.repeat(None, size) if names is None else names
    return _numbers(tokens.entries, zip(strings, ids, map(type, ids), strict=True), size)


def _numbers(parsed: _Parsed, logged: Iterable[Any], size: int) -> Ints:
    return np.fromiter(map(parsed.__getitem__, logged), np.int64, size)


def _logprobs(values: Any, numbers: Ints, tokens: Tokens) -> Floats:
    """The log-probabilities of tokens. Raises ValueError for one that is not a number ≤ 0."""
    try:
        if isinstance(values, np.ndarray) or set(map(type, values)) <= {int, float}:
            logprobs = np.asarray(values, np.float64)
            if (logprobs <= MOST).all():
                return logprobs
    except OverflowError:  # an integer that no float can hold
        pass
    for value, number in zip(values, numbers, strict=True):
        try:
            sound = type(value) in (int, float) and not math.isnan(value)
        except OverflowError:
            sound = False
        if not sound or value > MOST:
            shown = f"{value}, a probability above 1" if sound else reprlib.repr(value)
            raise ValueError(f"the log-probability of {describe(tokens.token(number))} is {shown}")
    raise AssertionError("all of them are sound")


def _token(text: str) -> Token:
    return (_id(text[len(_responses.ID) :]), None) if text.startswith(_responses.ID) else (None, text)


def _entry(logged: tuple[str | None, Any, type]) -> Token:
    """The token of an element, which has a string, an `id`, or both."""
    name, own, kind = logged
    number, string = (None, None) if name is None else _token(name)
    if number is None and kind is int:
        return own, string
    if kind is float and abs(own) >= 2**63:
        raise ValueError(f"{own} is too large for the id of a token")
    if name is None:
        raise ValueError(f"{reprlib.repr(own)} is not the id of a token")
    return number, string


def _id(text: str) -> int:
    if not text.isdecimal():
        raise ValueError(f"{text!r} is not the id of a token")
    if len(text) > _responses.MOST_DIGITS:
        raise ValueError(f"{text[: _responses.MOST_DIGITS]}… is too large for the id of a token")
    return int(text)


def describe(token: Token) -> str:
    return repr(token[1]) if token[0] is None else f"token {token[0]}"
