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

Both files are read once, in step, and hashed while they are read; again from the start if a token without an
id is met, since only then are the strings of the others of use. What a trace needs is known at their end
only (V, k, whether all tokens have ids), so until then the rows are kept in a temporary file, in less
than half of their size. Lines are parsed by orjson where it is installed; where it fails, or what it reads is
refused, the standard library's parser has the last word, so that result and messages are the same without it.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import pickle
import reprlib
from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from specsim.core._files import open_file
from specsim.core._json import parse_json
from specsim.core._kernels import kernel
from specsim.core._types import Floats, Ints
from specsim.traces._steps import Listings, Logged, Places, Source, Step, check_id

try:
    from orjson import loads
except ImportError:
    loads = None  # type: ignore[assignment]

SUFFIXES = (".jsonl", ".ndjson")

ID = "token_id:"
REMEDY = "log with return_tokens_as_token_ids"
UNKNOWN = "not log-probabilities as OpenAI or vLLM write them"
MOST_DIGITS = 18
#: The largest log-probability, which rounding may have put above 0.
MOST = 0.01
LOGPROB = itemgetter("logprob")
GZIP = b"\x1f\x8b"
#: Listed tokens that are kept together, and bytes after which progress is told.
BATCH, TOLD_AT = 2**18, 2**20
#: What a line may raise that is valid JSON, but nothing that is known.
STRANGE = (KeyError, TypeError, AttributeError, IndexError)

#: A token as it is logged: its id, or None; its string, or None.
Token = tuple[int | None, str | None]


class Rows(NamedTuple):
    """Logged rows of one line; row i lists numbers[ends[i]:ends[i + 1]], numbers of `Tokens`."""

    position: Ints  #: [n] in the line
    own: Ints  #: [n] the token that followed
    ends: Ints  #: [n + 1]
    numbers: Ints
    logprobs: Floats

    def part(self, first: int, end: int) -> Rows:
        chosen, listed = slice(first, end), slice(self.ends[first], self.ends[end])
        ends = self.ends[first : end + 1] - self.ends[first]
        return Rows(
            self.position[chosen], self.own[chosen], ends, self.numbers[listed], self.logprobs[listed]
        )

    def last(self, length: int) -> Rows:
        return self.part(len(self.own) - length, len(self.own))

    def listed(self, row: int) -> Ints:
        return self.numbers[self.ends[row] : self.ends[row + 1]]


class Text(NamedTuple):
    """Consecutive positions; `scored` if they are a prompt's, else they were generated."""

    place: str
    document: int | None
    scored: bool
    rows: Rows
    alone: bool = False  #: a line with a single position, of document 0 by default


class Paired(NamedTuple):
    """The rows of target and draft at the positions of a text."""

    document: int
    places: tuple[str, str]
    p: Rows
    q: Rows
    scored: tuple[bool, bool]


class WithoutIdError(Exception):
    """A token is logged without its id, so strings are needed."""


class Tokens:
    """The tokens met, numbered as they come; each distinct way to log one is parsed once.

    The strings of tokens that have ids are left out, unless `strings`; without, a token that has no id raises
    `WithoutIdError`."""

    def __init__(self, strings: bool) -> None:
        self.strings = strings
        self.met: list[Token] = []
        self.numbers: dict[Token, int] = {}
        self.texts = _Parsed(self, _token)
        self.ids = _Parsed(self, lambda key: (_id(key), None))
        self.named_ids = _Parsed(self, lambda logged: (_id(logged[0]), logged[1]))
        self.entries = _Parsed(self, _entry)

    def number(self, token: Token) -> int:
        if not self.strings:
            if token[0] is None:
                raise WithoutIdError
            token = token[0], None
        number = self.numbers.setdefault(token, len(self.met))
        if number == len(self.met):
            self.met.append(token)
        return number


class _Parsed(dict[Any, int]):
    """The numbers of tokens, by how they are logged; `parse` raises ValueError for what is no token."""

    def __init__(self, tokens: Tokens, parse: Callable[[Any], Token]):
        super().__init__()
        self.tokens, self.parse = tokens, parse

    def __missing__(self, logged: Any) -> int:
        number = self[logged] = self.tokens.number(self.parse(logged))
        return number


def read(source: Source) -> Logged:
    """The positions of both files. Errors name the file and the line."""
    try:
        return _read(source, Tokens(strings=False))
    except WithoutIdError:  # mostly in the first line
        source.scratch.seek(0)
        source.scratch.truncate()
        return _read(source, Tokens(strings=True))


def _read(source: Source, tokens: Tokens) -> Logged:
    if source.draft is None:
        raise ValueError(f"{source.path}: the target's log; the draft's is missing (--draft, draft=)")
    spool, tell = _Spool(source.scratch), source.tell
    files = [_Lines(path, tokens) for path in (source.path, source.draft)]
    total = sum(file.bytes for file in files)
    kinds, told = set(), 0
    for pair in _pair_positions(*files):
        if len(pair.p.own):
            kinds.add(pair.scored)
            spool.add(pair, tokens)
        if tell is not None and (done := files[0].done + files[1].done) >= told + TOLD_AT:
            told = done
            tell(done, total)
    spool.flush(tokens)
    if tell is not None:
        tell(total, total)
    if not kinds:
        raise ValueError(f"{source.path}: no log-probabilities in it")
    written = {(True, False): "the draft's own", (False, True): "the target's own"}
    text = written.get(kinds.pop(), "given") if len(kinds) == 1 else "of several kinds"
    facts = {"text": f"{text}; nothing was drafted, each row is a place in it"}
    met = [tokens.met[number] for number in spool.order]
    ids = all(number is not None for number, _ in met)
    strings: dict[str, int] = {}
    if not ids:
        facts["vocabulary"] = "the strings met, in order: tokens were logged without their ids"
        for _, string in met:
            if string is not None:
                strings.setdefault(string, len(strings))
    largest = max((number for number, _ in met if number is not None), default=0)
    size = max(source.vocab_size or 0, largest + 1 if ids else len(strings))
    return Logged(
        size,
        0,
        top=max(1, spool.most),
        flags=False,
        bonus=True,
        total=spool.total,
        steps=_steps(spool, tokens, None if ids else strings),
        facts=facts,
        files=[file.about for file in files],
    )


# --- from rows to steps ----------------------------------------------------------------------------------


class _Side(NamedTuple):
    """Rows of one of the files, of many lines."""

    places: list[str]  #: of the lines
    line: Ints  #: [n] the row's place among them
    rows: Rows

    def part(self, first: int, end: int) -> _Side:
        return _Side(self.places, self.line[first:end], self.rows.part(first, end))

    def place(self, row: int) -> str:
        return f"{self.places[self.line[row]]}, position {self.rows.position[row]}"


class _Spool:
    """Rows in a temporary file, until the layout of the trace is known.

    It counts the rows, the most tokens that one lists, and has the numbers of listed tokens in the order in
    which they appear, position by position, the target's before the draft's."""

    def __init__(self, file: IO[bytes]):
        self.file = file
        self.total, self.most = 0, 0
        self.order: list[int] = []
        self._seen = np.zeros(0, bool)
        self._waiting: list[Paired] = []
        self._size = 0

    def add(self, pair: Paired, tokens: Tokens) -> None:
        self._waiting.append(pair)
        self._size += len(pair.p.numbers) + len(pair.q.numbers)
        if self._size >= BATCH:
            self.flush(tokens)

    def flush(self, tokens: Tokens) -> None:
        if not self._waiting:
            return
        documents = [pair.document for pair in self._waiting for _ in range(len(pair.p.own))]
        p = _joined([(pair.places[0], pair.p) for pair in self._waiting])
        q = _joined([(pair.places[1], pair.q) for pair in self._waiting])
        self._meet(p, q, tokens)
        pickle.dump((documents, p, q), self.file, protocol=5)
        self.total += len(documents)
        self._waiting, self._size = [], 0

    def _meet(self, p: _Side, q: _Side, tokens: Tokens) -> None:
        """Note the tokens that are new. Raises ValueError for an id that a trace cannot represent."""
        self._seen = np.pad(self._seen, (0, len(tokens.met) - len(self._seen)))
        found = []  # (where it appears first, its number)
        for side, (_, _, rows) in enumerate((p, q)):
            self.most = max(self.most, int(np.diff(rows.ends).max(initial=0)))
            (fresh,) = np.nonzero(~self._seen[rows.numbers])
            numbers, first = np.unique(rows.numbers[fresh], return_index=True)
            row = np.searchsorted(rows.ends, fresh[first], side="right") - 1
            found += [*zip(row.tolist(), itertools.repeat(side), first.tolist(), numbers.tolist())]
        for row, side, _, number in sorted(found):
            if not self._seen[number]:
                self._seen[number] = True
                self.order.append(number)
                if (one := tokens.met[number][0]) is not None:
                    check_id(one, (p, q)[side].place(row))

    def __iter__(self) -> Iterator[tuple[list[int], _Side, _Side]]:
        self.file.seek(0)
        done = 0
        while done < self.total:
            batch = pickle.load(self.file)
            done += len(batch[0])
            yield batch


def _joined(parts: list[tuple[str, Rows]]) -> _Side:
    rows = [part for _, part in parts]
    sizes = [len(part.own) for part in rows]
    lengths = np.concatenate([np.diff(part.ends) for part in rows])
    joined = (np.concatenate([part[field] for part in rows]) for field in (0, 1, 3, 4))
    position, own, numbers, logprobs = joined
    ends = np.concatenate([[0], np.cumsum(lengths)])
    line = np.repeat(np.arange(len(parts)), sizes)
    return _Side([place for place, _ in parts], line, Rows(position, own, ends, numbers, logprobs))


def _steps(spool: _Spool, tokens: Tokens, strings: dict[str, int] | None) -> Iterator[Places]:
    if strings is None:
        ids = [-1 if number is None else number for number, _ in tokens.met]
    else:
        ids = [-1 if string is None else strings.get(string, -1) for _, string in tokens.met]
    # ids that no trace can represent belong to rows that are not used
    table = np.array([one if one < 2**63 else -1 for one in ids], np.int64)
    size = max(1, BATCH // max(1, spool.most))  # of which each row may list so many
    for documents, *sides in spool:
        for first in range(0, len(documents), size):
            chosen = slice(first, first + size)
            p, q = (side.part(first, min(first + size, len(documents))) for side in sides)
            listings = _listings(p.rows, table), _listings(q.rows, table)
            steps = _one_by_one(documents[chosen], p, q, tokens, strings)
            yield Places(documents[chosen], table[p.rows.own], *listings, steps)


def _listings(rows: Rows, table: Ints) -> Listings:
    values = np.empty_like(rows.logprobs)
    _exponentials(rows.logprobs, values)
    return Listings(np.diff(rows.ends), table[rows.numbers], values)


@kernel
def _exponentials(values, out):  # type: ignore[no-untyped-def]
    """Those of `math.exp`, from which NumPy's may differ in the last bit."""
    for i in range(values.size):
        out[i] = math.exp(values[i])


def _one_by_one(
    documents: list[int], p: _Side, q: _Side, tokens: Tokens, strings: dict[str, int] | None
) -> Iterator[Step]:
    for row, document in enumerate(documents):
        place = p.place(row)
        own = _number(tokens.met[p.rows.own[row]], strings, place)
        rows = [_row(side, row, tokens, strings) for side in (p, q)]
        yield Step(place, document, [own], None, rows[:1], rows[1:])


def _row(
    side: _Side, row: int, tokens: Tokens, strings: dict[str, int] | None
) -> tuple[list[int], list[float]]:
    place, (first, end) = side.place(row), side.rows.ends[row : row + 2]
    numbers = [_number(tokens.met[number], strings, place) for number in side.rows.listed(row)]
    if len(set(numbers)) < len(numbers):
        raise ValueError(f"{place}: two tokens of one row read alike; {REMEDY}")
    return numbers, [math.exp(logprob) for logprob in side.rows.logprobs[first:end].tolist()]


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


def _pair_positions(target: _Lines, draft: _Lines) -> Iterator[Paired]:
    tokens = target.tokens
    for number, (one, other) in enumerate(itertools.zip_longest(target, draft)):
        if one is None or other is None:
            longer, shorter = (draft, target) if one is None else (target, draft)
            raise ValueError(f"{shorter.path}: ends after {number} texts, {longer.path} goes on")
        p, q = one.rows, other.rows
        sizes = len(p.own), len(q.own)
        if one.scored != other.scored:  # a completion is the end of the prompt that was scored
            prompt = one if one.scored else other
            if len(prompt.rows.own) < max(sizes):
                raise ValueError(f"{prompt.place}: the prompt that was scored is shorter than the completion")
            p, q = p.last(min(sizes)), q.last(min(sizes))
        elif sizes[0] != sizes[1]:
            raise ValueError(f"{one.place}: {sizes[0]} positions, and {sizes[1]} in {other.place}")
        said = [text.document for text in (one, other) if text.document is not None]
        if len(set(said)) > 1:
            raise ValueError(
                f"{one.place}: document {said[0]}, and {said[1]} in {other.place}; give both the same"
            )
        document = said[0] if said else 0 if one.alone else number
        pair = Paired(document, (one.place, other.place), p, q, (one.scored, other.scored))
        yield _check_pair(pair, tokens)


def _check_pair(pair: Paired, tokens: Tokens) -> Paired:
    """Check that the rows are of the same tokens, those that were generated, if one of the files was.

    Where target and draft differ, the token of p's row becomes what it lists for the draft's."""
    own = pair.p.own
    for row in np.flatnonzero(own != pair.q.own).tolist():
        mine, theirs = tokens.met[own[row]], tokens.met[pair.q.own[row]]
        if _same(mine, theirs):
            continue
        token = theirs if pair.scored == (True, False) else mine
        here, there = (
            next((number for number in rows.listed(row) if _same(tokens.met[number], token)), None)
            for rows in (pair.p, pair.q)
        )
        if here is None or there is None or pair.scored[0] == pair.scored[1]:
            places = (
                f"{place}, position {rows.position[row]}"
                for place, rows in zip(pair.places, (pair.p, pair.q), strict=True)
            )
            raise ValueError(
                f"{next(places)}: the text goes on with {_describe(mine)}, and at {next(places)} "
                f"with {_describe(theirs)}; the two files must be "
                "about the same text, with its own token in every row (first, in prompt_logprobs)"
            )
        own = own.copy()
        own[row] = here
    return pair._replace(p=pair.p._replace(own=own))


def _same(one: Token, other: Token) -> bool:
    """Whether two tokens have the same id, or the same string if one of them has no id."""
    both_ids = one[0] is not None and other[0] is not None
    return one[0] == other[0] if both_ids else one[1] == other[1] is not None


def _describe(token: Token) -> str:
    return repr(token[1]) if token[0] is None else f"token {token[0]}"


# --- from lines to rows ----------------------------------------------------------------------------------


class _Lines:
    """The texts of a file, in order; `about` has the name, size and SHA-256 of what was read."""

    def __init__(self, path: Path, tokens: Tokens):
        self.path, self.tokens = path, tokens
        self.bytes, self.done = path.stat().st_size, 0
        self._digest = hashlib.sha256()

    @property
    def about(self) -> dict[str, Any]:
        return {"file": self.path.name, "bytes": self.done, "sha256": self._digest.hexdigest()}

    def __iter__(self) -> Iterator[Text]:
        with open_file(self.path) as file:  # decoded line by line, so that an error has a line number
            for number, line in enumerate(file, 1):
                self.done += len(line)
                self._digest.update(line)
                if line.strip():
                    yield from _parse_line(line, f"{self.path}, line {number}", self.tokens)


def _parse_line(line: bytes, place: str, tokens: Tokens) -> list[Text]:
    if loads is not None:
        try:
            return list(_parse_texts(loads(line), place, tokens))
        except (ValueError, *STRANGE):
            pass  # it reads no NaN, and integers above 2^64 as floats
    record = _record(line, place)
    try:
        return list(_parse_texts(record, place, tokens))
    except STRANGE as error:
        raise ValueError(f"{place}: {UNKNOWN} ({error!r})") from None


def _record(line: bytes, place: str) -> Any:
    try:
        return parse_json(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        remedy = "unpack it, it is gzipped" if line.startswith(GZIP) else "convert it to UTF-8"
        raise ValueError(f"{place}: not text in UTF-8 ({error}); {remedy}") from None
    except ValueError as error:
        raise ValueError(f"{place}: {UNKNOWN} ({error!r})") from None


def _parse_texts(record: dict[str, Any], place: str, tokens: Tokens) -> Iterator[Text]:
    document = record.get("document")
    if document is not None and type(document) is not int:
        raise ValueError(f"{place}: document is {document!r}, not an integer")
    for choice in record.get("choices", [record]):
        prompt = choice.get("prompt_logprobs") or record.get("prompt_logprobs")
        logprobs = choice.get("logprobs")
        if prompt:
            ids = choice.get("prompt_token_ids") or record.get("prompt_token_ids") or [None] * len(prompt)
            yield Text(place, document, True, _read_prompt(prompt, ids, place, tokens))
        elif isinstance(logprobs, dict) and logprobs.get("content") is not None:
            yield Text(place, document, False, _read_content(logprobs["content"], place, tokens))
        elif isinstance(logprobs, dict):
            yield Text(place, document, False, _read_completion(logprobs, place, tokens))
        elif "token" in record:
            yield Text(place, document, False, _read_content([record], place, tokens), alone=True)
        else:
            raise ValueError(
                f"{place}: neither prompt_logprobs, nor logprobs with tokens or content, nor a "
                "token; ask the server for them"
            )


def _read_prompt(
    prompt: list[dict[str, Any] | None], ids: list[int | None], place: str, tokens: Tokens
) -> Rows:
    if len(prompt) != len(ids):
        raise ValueError(f"{place}: {len(prompt)} prompt_logprobs and {len(ids)} prompt_token_ids")
    first = int(prompt[0] is None)
    if None in prompt[first:]:
        i = prompt.index(None, first)
        raise ValueError(f"{place}, position {i}: null, which only the first token's may be")
    return _rows(_of_prompt, place, range(first, len(prompt)), tokens, prompt[first:], ids[first:])


def _read_completion(logprobs: dict[str, Any], place: str, tokens: Tokens) -> Rows:
    columns = logprobs["tokens"], logprobs["token_logprobs"]
    tops = logprobs.get("top_logprobs") or [None] * len(columns[0])
    sizes = [*map(len, columns), len(tops)]
    if len(set(sizes)) > 1:
        raise ValueError(f"{place}: {sizes[0]} tokens, {sizes[1]} token_logprobs, {sizes[2]} top_logprobs")
    first = int(columns[1][:1] == [None])  # the first token of an echoed prompt
    parts = (column[first:] for column in (*columns, tops))
    return _rows(_of_completion, place, range(first, sizes[0]), tokens, *parts)


def _read_content(content: list[dict[str, Any]], place: str, tokens: Tokens) -> Rows:
    return _rows(_of_content, place, range(len(content)), tokens, content)


def _rows(
    read: Callable[..., Rows], place: str, positions: range, tokens: Tokens, *columns: list[Any]
) -> Rows:
    """`read`(positions, tokens, *columns); the first position that it refuses is named."""
    try:
        return read(positions, tokens, *columns)
    except ValueError as error:
        if len(positions) == 1:
            raise ValueError(f"{place}, position {positions[0]}: {error}") from None
        for i in range(len(positions)):
            _rows(read, place, positions[i : i + 1], tokens, *(column[i : i + 1] for column in columns))
        raise


# what follows reads all rows of a line at once: a loop over their entries would take most of the time


def _of_prompt(positions: range, tokens: Tokens, rows: list[dict[str, Any]], ids: list[int | None]) -> Rows:
    entries = [*itertools.chain.from_iterable(map(dict.values, rows))]
    keys: Iterable[Any] = itertools.chain.from_iterable(rows)
    if tokens.strings:
        decoded = (entry.get("decoded_token") for entry in entries)
        numbers = _numbers(tokens.named_ids, zip(keys, decoded, strict=True), len(entries))
    else:
        numbers = _numbers(tokens.ids, keys, len(entries))
    ends = np.cumsum([0, *map(len, rows)])
    own = numbers[np.minimum(ends[:-1], len(entries) - 1)]
    for row in range(len(rows)) if set(ids) != {None} or not all(rows) else ():
        listed = numbers[ends[row] : ends[row + 1]].tolist()
        token = next((n for n in listed if ids[row] is None or tokens.met[n][0] == ids[row]), None)
        if token is None:
            raise ValueError(f"the prompt's own token {ids[row]} is not listed")
        own[row] = token
    logprobs = _logprobs([*map(LOGPROB, entries)], numbers, tokens)
    return Rows(np.array(positions), own, ends, numbers, logprobs)


def _of_completion(
    positions: range, tokens: Tokens, texts: list[str], logprobs: list[Any], tops: list[dict[str, Any] | None]
) -> Rows:
    listed = [top or {} for top in tops]
    lengths = [*map(len, listed)]
    numbers = _numbers(tokens.texts, itertools.chain.from_iterable(listed), sum(lengths))
    own = _numbers(tokens.texts, texts, len(texts))
    values = [*itertools.chain.from_iterable(map(dict.values, listed))]
    return _with_own(positions, tokens, own, logprobs, lengths, numbers, values)


def _of_content(positions: range, tokens: Tokens, content: list[dict[str, Any]]) -> Rows:
    listed: list[Any] = [element.get("top_logprobs") or [] for element in content]
    lengths = [*map(len, listed)]
    if any(type(top) is dict for top in listed):
        listed = [[{"token": t, "logprob": v} for t, v in top.items()] for top in listed]
    entries = [*itertools.chain.from_iterable(listed)]
    numbers, own = (_numbers(tokens.entries, _logged(some), len(some)) for some in (entries, content))
    values = [*map(LOGPROB, entries)]
    return _with_own(positions, tokens, own, [*map(LOGPROB, content)], lengths, numbers, values)


def _logged(entries: list[dict[str, Any]]) -> Iterator[tuple[str, Any, type]]:
    ids = [entry.get("id") for entry in entries]
    return zip(map(itemgetter("token"), entries), ids, map(type, ids), strict=True)


def _numbers(parsed: _Parsed, logged: Iterable[Any], size: int) -> Ints:
    return np.fromiter(map(parsed.__getitem__, logged), np.int64, size)


def _with_own(
    positions: range,
    tokens: Tokens,
    own: Ints,
    logprobs: list[Any],
    lengths: list[int],
    numbers: Ints,
    values: list[Any],
) -> Rows:
    """Rows of their most probable tokens, of which their own token may be one."""
    row = np.repeat(np.arange(len(lengths)), lengths)
    keys = np.sort(row << 32 | numbers)
    if (keys[1:] == keys[:-1]).any():
        raise ValueError(f"two tokens of one row read alike; {REMEDY}")
    ends = np.cumsum([0, *lengths])
    found, given = _logprobs(values, numbers, tokens), _logprobs(logprobs, own, tokens)
    (here,) = np.nonzero(numbers == own[row])
    found[here] = given[row[here]]
    missing = np.ones(len(lengths), bool)
    missing[row[here]] = False
    if missing.any():
        numbers = np.insert(numbers, ends[1:][missing], own[missing])
        found = np.insert(found, ends[1:][missing], given[missing])
        ends[1:] += np.cumsum(missing)
    return Rows(np.array(positions), own, ends, numbers, found)


def _logprobs(values: list[Any], numbers: Ints, tokens: Tokens) -> Floats:
    """The log-probabilities of tokens. Raises ValueError for a number that is none."""
    try:
        if set(map(type, values)) <= {int, float}:
            logprobs = np.array(values, np.float64)
            if (logprobs <= MOST).all():
                return logprobs
    except OverflowError:  # an integer that no float can hold
        pass
    for value, number in zip(values, numbers, strict=True):
        try:
            sound = type(value) in (int, float) and not math.isnan(value)
        except OverflowError:
            sound = False
        told = f"the log-probability of {_describe(tokens.met[number])} is"
        if not sound:
            raise ValueError(f"{told} {reprlib.repr(value)}")
        if value > MOST:
            raise ValueError(f"{told} {value}, a probability above 1")
    raise AssertionError("one of them is not sound")


def _token(text: str) -> Token:
    return (_id(text[len(ID) :]), None) if text.startswith(ID) else (None, text)


def _entry(logged: tuple[str, Any, type]) -> Token:
    """The token of an element, which may have its `id` beside its string."""
    (number, string), own = _token(logged[0]), logged[1]
    if number is None and logged[2] is int:
        return own, string
    if logged[2] is float and abs(own) >= 2**63:
        raise ValueError(f"{own} is too large for the id of a token")
    return number, string


def _id(text: str) -> int:
    if not text.isdecimal():
        raise ValueError(f"{text!r} is not the id of a token")
    if len(text) > MOST_DIGITS:
        raise ValueError(f"{text[:MOST_DIGITS]}… is too large for the id of a token")
    return int(text)
