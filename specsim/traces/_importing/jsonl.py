"""JSON Lines of log-probabilities, as the APIs of OpenAI and vLLM return them.

Two files, the target's and the draft's: line i of one and of the other are about the same text. A line is a
response of the server or a part of one; it has, in this order of precedence,

- `prompt_logprobs`, in a choice or beside `choices` (vLLM): for each token of a prompt, after a null, an
  object {token id: {"logprob": …, "decoded_token": …}} whose first key is the prompt's own token (see
  vllm-project/vllm#10607), unless `prompt_token_ids` is there too;
- `logprobs` of a completion: {"tokens": […], "token_logprobs": […], "top_logprobs": [{token: logprob, …},
  …]};
- `logprobs` of a chat: {"content": [{"token": …, "logprob": …, "top_logprobs": [{"token": …, "logprob": …},
  …]}, …]};
- one element of such a `content`, for a line that is a single position, with `document` (int) if there are
  several texts.

So the usual pair of files is: the draft's own completions with `logprobs`, and the target's `prompt_logprobs`
of prompt and completion together, whose last positions are those of the completion. Nothing was drafted in
such a log. Each position is a context with a row p and a row q, truncated to what was listed, and the token
that followed: a trace with γ = 0. Whose text it is says `text` in the provenance: contexts of the draft's own
text are not those of the target's.

Logarithms are natural. What is listed must be the most probable tokens and perhaps the text's own; the tail
is one minus their mass. Tokens are ids where all of them are: in `prompt_logprobs`, as "token_id:123" (vLLM's
`return_tokens_as_token_ids`), or as an `id` beside a chat's `token`. Otherwise the strings identify them,
numbered in order of appearance; two tokens of one row with the same string are refused.
"""

import itertools
import math
import reprlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from specsim.core._files import open_file
from specsim.core._json import parse_json
from specsim.traces._steps import Logged, Source, Step, check_id

SUFFIXES = (".jsonl", ".ndjson")

ID = "token_id:"
REMEDY = "log with return_tokens_as_token_ids"
UNKNOWN = "not log-probabilities as OpenAI or vLLM write them"
MOST_DIGITS = 18
GZIP = b"\x1f\x8b"

#: A token as it is logged: its id, or None; its string, or None.
Token = tuple[int | None, str | None]


class Position(NamedTuple):
    """A logged row, and the token that followed."""

    place: str
    token: Token
    logprobs: dict[Token, float]


class Text(NamedTuple):
    """Consecutive positions; `scored` if they are a prompt's, else they were generated."""

    place: str
    document: int | None
    scored: bool
    positions: list[Position]
    alone: bool = False  #: a line with a single position, of document 0 by default


class Paired(NamedTuple):
    """A position of the text with the rows of target and draft."""

    document: int
    p: Position
    q: Position
    scored: tuple[bool, bool]


def read(source: Source) -> Logged:
    """The positions of both files, which are read twice. Errors name the file and the line."""
    if source.draft is None:
        raise ValueError(f"{source.path}: the target's log; the draft's is missing (--draft, draft=)")
    total, most, largest, ids, strings = 0, 1, 0, True, dict[str, int]()
    kinds = set()
    for pair in _pair_positions(source.path, source.draft):
        total += 1
        kinds.add(pair.scored)
        for row in (pair.p, pair.q):
            most = max(most, len(row.logprobs))
            for number, string in row.logprobs:
                largest = max(largest, -1 if number is None else check_id(number, row.place))
                ids = ids and number is not None
                if string is not None:
                    strings.setdefault(string, len(strings))
    if not kinds:
        raise ValueError(f"{source.path}: no log-probabilities in it")
    written = {(True, False): "the draft's own", (False, True): "the target's own"}
    text = written.get(kinds.pop(), "given") if len(kinds) == 1 else "of several kinds"
    facts = {"text": f"{text}; nothing was drafted, each row is a place in it"}
    if not ids:
        facts["vocabulary"] = "the strings met, in order: tokens were logged without their ids"
    size = max(source.vocab_size or 0, largest + 1 if ids else len(strings))
    steps = _steps(source.path, source.draft, None if ids else strings)
    return Logged(size, 0, top=most, flags=False, bonus=True, total=total, steps=steps, facts=facts)


def _steps(target: Path, draft: Path, strings: dict[str, int] | None) -> Iterator[Step]:
    for document, p, q, _ in _pair_positions(target, draft):
        tokens = [_number(p.token, strings, p.place)]
        yield Step(p.place, document, tokens, None, [_row(p, strings)], [_row(q, strings)])


def _row(position: Position, strings: dict[str, int] | None) -> tuple[list[int], list[float]]:
    numbers = [_number(token, strings, position.place) for token in position.logprobs]
    if len(set(numbers)) < len(numbers):
        raise ValueError(f"{position.place}: two tokens of one row read alike; {REMEDY}")
    return numbers, [math.exp(logprob) for logprob in position.logprobs.values()]


def _number(token: Token, strings: dict[str, int] | None, place: str) -> int:
    number, string = token
    if strings is None:
        assert number is not None  # or strings would have been counted
        return number
    if string is None:
        raise ValueError(
            f"{place}: token {number} is logged as an id alone, others as strings alone; {REMEDY}"
        )
    return strings[string]


def _pair_positions(target: Path, draft: Path) -> Iterator[Paired]:
    for number, (one, other) in enumerate(itertools.zip_longest(_texts(target), _texts(draft))):
        if one is None or other is None:
            longer, shorter = (draft, target) if one is None else (target, draft)
            raise ValueError(f"{shorter}: ends after {number} texts, {longer} goes on")
        p, q = one.positions, other.positions
        if one.scored != other.scored:  # a completion is the end of the prompt that was scored
            length = min(len(p), len(q))
            prompt = one if one.scored else other
            if len(prompt.positions) < max(len(p), len(q)):
                raise ValueError(f"{prompt.place}: the prompt that was scored is shorter than the completion")
            p, q = p[len(p) - length :], q[len(q) - length :]
        if len(p) != len(q):
            raise ValueError(f"{one.place}: {len(p)} positions, and {len(q)} in {other.place}")
        said = [text.document for text in (one, other) if text.document is not None]
        if len(set(said)) > 1:
            raise ValueError(
                f"{one.place}: document {said[0]}, and {said[1]} in {other.place}; give both the same"
            )
        document = said[0] if said else 0 if one.alone else number
        for mine, theirs in zip(p, q, strict=True):
            yield _check_pair(document, mine, theirs, (one.scored, other.scored))


def _check_pair(document: int, p: Position, q: Position, scored: tuple[bool, bool]) -> Paired:
    """Pair two rows of the same token: the generated one, if one of the files was generated."""
    token = q.token if scored == (True, False) else p.token
    own = _same(p, token)
    if own is None or _same(q, token) is None or (scored[0] == scored[1] and _same(p, q.token) != own):
        raise ValueError(
            f"{p.place}: the text goes on with {_describe(p.token)}, and at {q.place} "
            f"with {_describe(q.token)}; the two files must be "
            "about the same text, with its own token in every row (first, in prompt_logprobs)"
        )
    return Paired(document, p._replace(token=own), q, scored)


def _same(row: Position, token: Token) -> Token | None:
    """The entry of `row` for `token`: the same id, or the same string if one of them has no id."""
    for listed in row.logprobs:
        both_ids = listed[0] is not None and token[0] is not None
        if listed[0] == token[0] if both_ids else listed[1] == token[1] is not None:
            return listed
    return None


def _describe(token: Token) -> str:
    return repr(token[1]) if token[0] is None else f"token {token[0]}"


def _texts(path: Path) -> Iterator[Text]:
    with open_file(path) as file:  # decoded line by line, so that an error has a line number
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            place = f"{path}, line {number}"
            try:
                yield from _parse_texts(_record(line, place), place)
            except (KeyError, TypeError, AttributeError, IndexError) as error:
                raise ValueError(f"{place}: {UNKNOWN} ({error!r})") from None


def _record(line: bytes, place: str) -> Any:
    try:
        return parse_json(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        remedy = "unpack it, it is gzipped" if line.startswith(GZIP) else "convert it to UTF-8"
        raise ValueError(f"{place}: not text in UTF-8 ({error}); {remedy}") from None
    except ValueError as error:
        raise ValueError(f"{place}: {UNKNOWN} ({error!r})") from None


def _parse_texts(record: dict[str, Any], place: str) -> Iterator[Text]:
    document = record.get("document")
    if document is not None and type(document) is not int:
        raise ValueError(f"{place}: document is {document!r}, not an integer")
    for choice in record.get("choices", [record]):
        prompt = choice.get("prompt_logprobs") or record.get("prompt_logprobs")
        logprobs = choice.get("logprobs")
        if prompt:
            ids = choice.get("prompt_token_ids") or record.get("prompt_token_ids") or [None] * len(prompt)
            yield Text(place, document, True, list(_read_prompt(prompt, ids, place)))
        elif isinstance(logprobs, dict) and logprobs.get("content") is not None:
            yield Text(place, document, False, _read_content(logprobs["content"], place))
        elif isinstance(logprobs, dict):
            yield Text(place, document, False, list(_read_completion(logprobs, place)))
        elif "token" in record:
            yield Text(place, document, False, _read_content([record], place), alone=True)
        else:
            raise ValueError(
                f"{place}: neither prompt_logprobs, nor logprobs with tokens or content, nor a "
                "token; ask the server for them"
            )


def _read_prompt(
    prompt: list[dict[str, Any] | None], ids: list[int | None], place: str
) -> Iterator[Position]:
    if len(prompt) != len(ids):
        raise ValueError(f"{place}: {len(prompt)} prompt_logprobs and {len(ids)} prompt_token_ids")
    for i, (entries, own) in enumerate(zip(prompt, ids, strict=True)):
        if entries is None:
            if i:
                raise ValueError(f"{place}, position {i}: null, which only the first token's may be")
            continue
        where = f"{place}, position {i}"
        logprobs: dict[Token, Any] = {
            (_id(key, where), entry.get("decoded_token")): entry["logprob"] for key, entry in entries.items()
        }
        token = next((token for token in logprobs if own is None or token[0] == own), None)
        if token is None:
            raise ValueError(f"{where}: the prompt's own token {own} is not listed")
        yield _position(where, token, logprobs)


def _read_content(content: list[dict[str, Any]], place: str) -> list[Position]:
    found = []
    for i, element in enumerate(content):
        where, top = f"{place}, position {i}", element.get("top_logprobs") or []
        if isinstance(top, dict):
            listed = [(_token(token, where), logprob) for token, logprob in top.items()]
        else:
            listed = [(_entry(entry, where), entry["logprob"]) for entry in top]
        found.append(_listing(where, _entry(element, where), element["logprob"], listed))
    return found


def _entry(entry: dict[str, Any], place: str) -> Token:
    """The token of an element, which may have its `id` beside its string."""
    number, string = _token(entry["token"], place)
    own = entry.get("id")
    return (own, string) if number is None and type(own) is int else (number, string)


def _read_completion(logprobs: dict[str, Any], place: str) -> Iterator[Position]:
    tokens, own = logprobs["tokens"], logprobs["token_logprobs"]
    tops = logprobs.get("top_logprobs") or [None] * len(tokens)
    if not len(tokens) == len(own) == len(tops):
        raise ValueError(
            f"{place}: {len(tokens)} tokens, {len(own)} token_logprobs, {len(tops)} top_logprobs"
        )
    for i, (token, logprob, top) in enumerate(zip(tokens, own, tops, strict=True)):
        if logprob is None and i == 0:  # the first token of an echoed prompt
            continue
        where = f"{place}, position {i}"
        listed = [(_token(listed, where), value) for listed, value in (top or {}).items()]
        yield _listing(where, _token(token, where), logprob, listed)


def _listing(place: str, own: Token, logprob: Any, listed: list[tuple[Token, Any]]) -> Position:
    logprobs = dict(listed)
    if len(logprobs) < len(listed):
        raise ValueError(f"{place}: two tokens of one row read alike; {REMEDY}")
    return _position(place, own, {**logprobs, own: logprob})


def _position(place: str, token: Token, logprobs: dict[Token, Any]) -> Position:
    for listed, logprob in logprobs.items():
        try:
            sound = type(logprob) in (int, float) and not math.isnan(logprob)
        except OverflowError:  # an integer that no float can hold
            sound = False
        if not sound:
            raise ValueError(
                f"{place}: the log-probability of {_describe(listed)} is {reprlib.repr(logprob)}"
            )
        if logprob > 0.01:
            raise ValueError(
                f"{place}: the log-probability of {_describe(listed)} is {logprob}, a probability above 1"
            )
    return Position(place, token, logprobs)


def _token(text: str, place: str) -> Token:
    return (_id(text[len(ID) :], place), None) if text.startswith(ID) else (None, text)


def _id(text: str, place: str) -> int:
    if not text.isdecimal():
        raise ValueError(f"{place}: {text!r} is not the id of a token")
    if len(text) > MOST_DIGITS:
        raise ValueError(f"{place}: {text[:MOST_DIGITS]}… is too large for the id of a token")
    return int(text)
