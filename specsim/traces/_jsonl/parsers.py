"""Processes that parse blocks of lines, while this one pairs and keeps the rows of the blocks before.

They only save time. This process parses a block if none has begun with it when its rows are needed, and if
one has died or finds something wrong: so errors are the same without other processes."""

import hashlib
import pickle
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

import numpy as np

from specsim.core._files import open_file
from specsim.core._processes import calling
from specsim.traces._jsonl.rows import Block, Text, Token, Tokens, parse_block

#: Bytes that are read of a reply at a time.
BUFFER = 2**20
#: Bytes of a block, but for the rest of its last line.
BLOCK = 2**20


class Texts:
    """The texts of a file, whose lines are parsed ahead if there are `parsers`, else one by one. `done` has
    the bytes of the lines begun, `about` the name, size and SHA-256 of what was read."""

    def __init__(self, path: Path, tokens: Tokens, parsers: "Parsers | None"):
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
        self.done += sum(map(len, block.lines))
        if parsed is None or parsed.cancel() or (found := parsed.result()) is None:
            yield from parse_block(block, self._tokens)
        else:
            yield from found.numbered(self._tokens)


class Parsers:
    """Processes, each with a thread that hands it a block and waits for its reply."""

    def __init__(self, processes: "list[subprocess.Popen[bytes]]", threads: ThreadPoolExecutor):
        self.number = len(processes)
        self._threads = threads
        self._free: SimpleQueue[subprocess.Popen[bytes]] = SimpleQueue()
        for process in processes:
            self._free.put(process)
            self.submit(Block("", 1, []))  # until it has started, blocks wait, and can be cancelled

    def submit(self, block: Block) -> "Future[_Parsed | None]":
        return self._threads.submit(self._parse, block)

    def _parse(self, block: Block) -> "_Parsed | None":
        process = self._free.get()
        try:
            return parse(process, block)
        finally:
            self._free.put(process)


@contextmanager
def open_parsers(number: int, strings: bool) -> Iterator[Parsers | None]:
    """Start `number` processes that are killed at the end; None for less than two, or if none starts."""
    if number < 2:
        yield None
        return
    processes: list[subprocess.Popen[bytes]] = []
    threads = ThreadPoolExecutor(number)
    try:
        with suppress(OSError):
            for _ in range(number):
                processes.append(start(strings))
        yield Parsers(processes, threads) if processes else None
    finally:
        for process in processes:
            process.kill()
        threads.shutdown(cancel_futures=True)  # they read the end of what their processes wrote
        for process in processes:
            process.communicate()


class _Parsed(NamedTuple):
    """The texts of a block, with tokens numbered as the block has them."""

    met: list[Token]
    texts: list[Text]

    def numbered(self, tokens: Tokens) -> Iterator[Text]:
        """The texts in the numbers of `tokens`."""
        table = np.array([tokens.number(token) for token in self.met], np.int64)
        for text in self.texts:
            rows = text.rows
            yield text._replace(rows=rows._replace(own=table[rows.own], numbers=table[rows.numbers]))


def start(strings: bool) -> "subprocess.Popen[bytes]":
    call, pipe = calling(serve, str(int(strings))), subprocess.PIPE
    # in a session of its own: Ctrl-C is for the parent
    return subprocess.Popen(call, bufsize=BUFFER, stdin=pipe, stdout=pipe, start_new_session=True)


def parse(process: "subprocess.Popen[bytes]", block: Block) -> _Parsed | None:
    """None if something is wrong with the block, or the process."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(pickle.dumps(block, protocol=5))
        process.stdin.flush()
        found: _Parsed | None = pickle.load(process.stdout)
    except Exception:  # whatever it is, the block can be parsed in this process
        process.kill()
        return None
    return found


def serve(strings: str) -> None:
    """Reply to blocks with their tokens and texts, or None where something is wrong."""
    requests, replies = sys.stdin.buffer, sys.stdout.buffer
    with suppress(EOFError, BrokenPipeError):  # the parent has ended
        while True:
            block = pickle.load(requests)
            tokens, found = Tokens(bool(int(strings))), None
            with suppress(Exception):
                found = _Parsed(tokens.met, list(parse_block(block, tokens)))
            replies.write(pickle.dumps(found, protocol=5))
            replies.flush()
