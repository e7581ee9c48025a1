"""The texts of a JSON Lines file, in order."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from specsim.core._files import open_file
from specsim.traces._jsonl.parsers import Parsers, texts_of
from specsim.traces._jsonl.rows import Block, Text, Tokens

#: Bytes of a block, but for the rest of its last line.
BLOCK = 2**20


class Texts:
    """The texts of a file, whose lines are parsed ahead if there are `parsers`, else one by one.

    `done` has the bytes of the lines begun, `about` the name, size and SHA-256 of what was read."""

    def __init__(self, path: Path, tokens: Tokens, parsers: Parsers | None):
        self.path, self.done = path, 0
        self._tokens, self._parsers = tokens, parsers
        self._digest = hashlib.sha256()

    @property
    def about(self) -> dict[str, Any]:
        return {"file": self.path.name, "bytes": self.done, "sha256": self._digest.hexdigest()}

    def __iter__(self) -> Iterator[Text]:
        waiting: deque[tuple[Block, Future[Any] | None]] = deque()
        ahead = 0 if self._parsers is None else self._parsers.number + 1
        for block in self._blocks():
            waiting.append((block, None if self._parsers is None else self._parsers.submit(block)))
            if len(waiting) > ahead:
                yield from self._next(waiting)
        while waiting:
            yield from self._next(waiting)

    def _blocks(self) -> Iterator[Block]:
        first = 1
        size = 1 if self._parsers is None else BLOCK
        with open_file(self.path) as file:  # decoded line by line, so that an error has a line number
            while lines := file.readlines(size):
                for line in lines:
                    self._digest.update(line)
                yield Block(str(self.path), first, lines)
                first += len(lines)

    def _next(self, waiting: deque[tuple[Block, Future[Any] | None]]) -> Iterator[Text]:
        block, parsed = waiting.popleft()
        self.done += block.bytes
        yield from texts_of(block, parsed, self._tokens)
