"""The texts of a file, whose next lines a thread reads and adds to a digest meanwhile."""

import hashlib
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import IO, Any

from specsim.core._files import open_file
from specsim.traces._jsonl.rows import Text, Tokens, parse_line

#: Bytes that are read at a time, but for the rest of the last line, and how often before they are needed.
BLOCK, AHEAD = 2**22, 2


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
        number = 0
        with open_file(self.path) as file, ThreadPoolExecutor(1) as thread:
            reading = deque(thread.submit(self._read, file) for _ in range(AHEAD))
            while block := reading.popleft().result():
                reading.append(thread.submit(self._read, file))
                for line in BytesIO(block):  # decoded line by line, so that an error has a line number
                    number += 1
                    self.done += len(line)
                    if not line.isspace():
                        yield from parse_line(line, f"{self.path}, line {number}", self._tokens)

    def _read(self, file: IO[bytes]) -> bytes:
        block = file.read(BLOCK) + file.readline()
        self._digest.update(block)
        return block
