"""JSON Lines of log-probabilities, as the APIs of OpenAI and vLLM return them; docs/importing-logs.md has the
format.

Both files are read once, in step, and hashed meanwhile; again from the start at a token without an id, since
only then the strings matter. V, k, and whether all tokens have ids are known at the end, so until then a
temporary file keeps the rows. `specsim.traces._jsonl` parses lines.
"""

import hashlib
import itertools
import math
import pickle
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from specsim.core._files import open_file
from specsim.core._kernels import kernel
from specsim.core._types import Ints
from specsim.traces._jsonl.rows import REMEDY, Rows, Text, Token, Tokens, WithoutIdError, describe, parse_line
from specsim.traces._steps import Listings, Logged, Places, Source, Step, check_id

SUFFIXES = (".jsonl", ".ndjson")

#: Listed tokens that are kept together, and bytes after which progress is reported.
BATCH, TOLD_AT = 2**18, 2**20
#: Bytes that are read at once, but for the rest of a line, and how many items a thread makes ahead.
BLOCK, AHEAD = 2**22, 2


class Paired(NamedTuple):
    """The rows of target and draft at the positions of a text."""

    document: int
    places: tuple[str, str]
    p: Rows
    q: Rows
    scored: tuple[bool, bool]


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
        raise ValueError(f"{source.path}: the draft's log is missing; give it as draft (--draft)")
    spool, tell = _Spool(source.scratch), source.tell
    paths = source.path, source.draft
    total = sum(path.stat().st_size for path in paths)
    kinds, told = set(), 0
    target, draft = files = [Texts(path, tokens) for path in paths]
    for pair in _pair_positions(target, draft, tokens):
        if len(pair.p.own):
            kinds.add(pair.scored)
            spool.add(pair, tokens)
        if (done := target.done + draft.done) >= told + TOLD_AT:
            told = done
            tell(done, total)
    spool.flush(tokens)
    tell(total, total)
    if not kinds:
        raise ValueError(f"{source.path}: has no log-probabilities; ask the server for them")
    written = {(True, False): "the draft's own", (False, True): "the target's own"}
    text = written.get(kinds.pop(), "given") if len(kinds) == 1 else "of several kinds"
    facts = {"text": f"{text}; nothing was drafted, each row is a place in it"}
    met = [tokens.token(number) for number in spool.order]
    ids = all(number is not None for number, _ in met)
    if not ids:
        facts["vocabulary"] = "the strings met, in order: tokens were logged without their ids"
    strings = dict.fromkeys(string for _, string in met if string is not None)
    names: dict[str | None, int] = {string: i for i, string in enumerate(strings)}
    known = (number if ids else names.get(string) for number, string in tokens.met)
    # ids too large for a trace belong to rows that are not used
    tokens.in_trace = np.array([-1 if one is None or one >= 2**63 else one for one in known], np.int64)
    largest = max((number for number, _ in met if number is not None), default=0)
    size = max(source.vocab_size or 0, largest + 1 if ids else len(names))
    about, top = [file.about for file in files], max(1, spool.most)
    return Logged(size, 0, top, False, True, spool.total, _ahead(_steps(spool, tokens)), facts, files=about)


class Texts:
    """The texts of a file. `done` has the bytes of the lines begun, `about` the name, size and SHA-256 of
    what was read."""

    def __init__(self, path: Path, tokens: Tokens):
        self.path, self.done = path, 0
        self._tokens, self._digest = tokens, hashlib.sha256()

    @property
    def about(self) -> dict[str, Any]:
        return {"file": self.path.name, "bytes": self.done, "sha256": self._digest.hexdigest()}

    def __iter__(self) -> Iterator[Text]:
        blocks = map(BytesIO, _ahead(self._blocks()))
        # decoded line by line, so that an error has a line number
        for number, line in enumerate(itertools.chain.from_iterable(blocks), 1):
            self.done += len(line)
            if not line.isspace():
                yield from parse_line(line, f"{self.path}, line {number}", self._tokens)

    def _blocks(self) -> Iterator[bytes]:
        with open_file(self.path) as file:
            while block := file.read(BLOCK) + file.readline():
                self._digest.update(block)
                yield block


def _ahead(items: Iterator[Any]) -> Iterator[Any]:
    """These items, which a thread makes while the ones before are used."""
    with ThreadPoolExecutor(1) as thread:
        coming = deque(thread.submit(next, items, None) for _ in range(AHEAD))
        while item := coming.popleft().result():
            coming.append(thread.submit(next, items, None))
            yield item


# From rows to steps.


class _Side(NamedTuple):
    """Rows of one of the files, of many lines."""

    places: list[str]  #: of the lines
    line: Ints  #: [n] the row's place among them
    rows: Rows

    def part(self, first: int, end: int) -> "_Side":
        return _Side(self.places, self.line[first:end], self.rows.part(first, end))

    def place(self, row: int) -> str:
        return f"{self.places[self.line[row]]}, position {self.rows.position[row]}"


class _Spool:
    """Rows in a temporary file, until the layout of the trace is known."""

    def __init__(self, file: IO[bytes]):
        self.file = file
        self.total, self.most = 0, 0  # rows, and the most tokens that one lists
        #: Numbers of listed tokens as they appear, position by position, the target's before the draft's; of
        #: ids only the largest.
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
        self.most = max(self.most, *(int(np.diff(side.rows.ends).max(initial=0)) for side in (p, q)))
        self._meet(p, q, tokens)
        pickle.dump((documents, p, q), self.file, protocol=5)
        self.total += len(documents)
        self._waiting, self._size = [], 0

    def _meet(self, p: _Side, q: _Side, tokens: Tokens) -> None:
        """Note the tokens that are new. Raises ValueError for an id that is too large."""
        if not tokens.strings:
            self.order = [max(*self.order, *(int(side.rows.numbers.max(initial=0)) for side in (p, q)))]
            return
        self._seen = np.pad(self._seen, (0, len(tokens.met) - len(self._seen)))
        found = []  # (where it appears first, its number)
        for side, (_, _, rows) in enumerate((p, q)):
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
    lengths = np.concatenate([np.diff(part.ends) for part in rows])
    position, own, numbers, logprobs = (np.concatenate([part[i] for part in rows]) for i in (0, 1, 3, 4))
    ends = np.concatenate([[0], np.cumsum(lengths)])
    line = np.repeat(np.arange(len(parts)), [len(part.own) for part in rows])
    return _Side([place for place, _ in parts], line, Rows(position, own, ends, numbers, logprobs))


def _steps(spool: _Spool, tokens: Tokens) -> Iterator[Places]:
    size = max(1, BATCH // max(1, spool.most))  # each row may list that many
    for documents, *sides in spool:
        for first in range(0, len(documents), size):
            some, (p, q) = documents[first : first + size], (side.part(first, first + size) for side in sides)
            listings = _listings(p.rows, tokens), _listings(q.rows, tokens)
            steps = _one_by_one(some, p, q, tokens)
            yield Places(some, tokens.ids_of(p.rows.own), *listings, steps)


def _listings(rows: Rows, tokens: Tokens) -> Listings:
    values = np.empty_like(rows.logprobs)
    _exponentials(rows.logprobs, values)
    return Listings(np.diff(rows.ends), tokens.ids_of(rows.numbers), values)


@kernel
def _exponentials(values, out):  # type: ignore[no-untyped-def]
    """Those of `math.exp`, from which NumPy's may differ in the last bit."""
    for i in range(values.size):
        out[i] = math.exp(values[i])


def _one_by_one(documents: list[int], p: _Side, q: _Side, tokens: Tokens) -> Iterator[Step]:
    for row, document in enumerate(documents):
        place = p.place(row)
        own = _ids(p.rows.own[row : row + 1], tokens, place)
        rows = [_row(side, row, tokens) for side in (p, q)]
        yield Step(place, document, own, None, rows[:1], rows[1:])


def _row(side: _Side, row: int, tokens: Tokens) -> tuple[list[int], list[float]]:
    place, (first, end) = side.place(row), side.rows.ends[row : row + 2]
    ids = _ids(side.rows.listed(row), tokens, place)
    if len(set(ids)) < len(ids):
        raise ValueError(f"{place}: two tokens of one row read alike; {REMEDY}")
    return ids, [math.exp(logprob) for logprob in side.rows.logprobs[first:end].tolist()]


def _ids(numbers: Ints, tokens: Tokens, place: str) -> list[int]:
    ids = tokens.ids_of(numbers)
    for number in numbers[ids < 0]:
        own, _ = tokens.token(number)
        raise ValueError(f"{place}: token {own} is an id alone, others are strings alone; {REMEDY}")
    return ids.tolist()


def _pair_positions(target: Texts, draft: Texts, tokens: Tokens) -> Iterator[Paired]:
    for number, (one, other) in enumerate(itertools.zip_longest(target, draft)):
        if one is None or other is None:
            longer, shorter = (draft, target) if one is None else (target, draft)
            raise ValueError(f"{shorter.path}: ends after {number} texts, before {longer.path}; log the rest")
        p, q = one.rows, other.rows
        sizes = len(p.own), len(q.own)
        if one.scored != other.scored:  # a completion is the end of the prompt that was scored
            prompt = one if one.scored else other
            if len(prompt.rows.own) < max(sizes):
                raise ValueError(f"{prompt.place}: its prompt is shorter than the completion; score it all")
            p, q = (rows.part(size - min(sizes), size) for rows, size in zip((p, q), sizes, strict=True))
        elif sizes[0] != sizes[1]:
            raise ValueError(f"{one.place}: has {sizes[0]} positions, {other.place} {sizes[1]}; log one text")
        said = [text.document for text in (one, other) if text.document is not None]
        if len(set(said)) > 1:
            raise ValueError(f"{one.place}: document {said[0]}, {said[1]} in {other.place}; give one number")
        document = said[0] if said else 0 if one.alone else number
        pair = Paired(document, (one.place, other.place), p, q, (one.scored, other.scored))
        yield _check_pair(pair, tokens)


def _check_pair(pair: Paired, tokens: Tokens) -> Paired:
    """Check that the rows are of the same tokens: the generated ones, if one of the files was generated.
    Where target and draft differ, p's row takes the token that it lists for the draft's."""
    own = pair.p.own
    for row in np.flatnonzero(own != pair.q.own).tolist():
        mine, theirs = tokens.token(own[row]), tokens.token(pair.q.own[row])
        if _same(mine, theirs):
            continue
        token = theirs if pair.scored == (True, False) else mine
        here, there = (
            next((number for number in rows.listed(row) if _same(tokens.token(number), token)), None)
            for rows in (pair.p, pair.q)
        )
        if here is None or there is None or pair.scored[0] == pair.scored[1]:
            one, other = (
                f"{place}, position {rows.position[row]}"
                for place, rows in zip(pair.places, (pair.p, pair.q), strict=True)
            )
            raise ValueError(
                f"{one}: the text continues with {describe(mine)}, at {other} with {describe(theirs)}; give "
                "two files of one text, with its own token in every row (first, in prompt_logprobs)"
            )
        own = own.copy()
        own[row] = here
    return pair._replace(p=pair.p._replace(own=own))


def _same(one: Token, other: Token) -> bool:
    """Whether two tokens have the same id, or the same string if one of them has no id."""
    both_ids = one[0] is not None and other[0] is not None
    return one[0] == other[0] if both_ids else one[1] == other[1] is not None
