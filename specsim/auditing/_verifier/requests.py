"""What a user's function is asked, and how parent and child send it to each other over a socket.

The child answers with frames: the nonce of the question, a kind, and the size of what follows. The parent
takes nothing else from it: no object of the child is ever unpickled, and a frame that is not expected means
that the verifier is broken. The parent asks with a pickle; an array that the child got with the question
before is not sent again."""

import pickle
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import IntEnum
from socket import socket
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from specsim.adapters._contract import Declared
from specsim.auditing._cases.decoder_battery import DecoderCase, decoder_battery
from specsim.auditing._verifier.arrays import Device
from specsim.auditing._verifier.origin import Origin
from specsim.core._streams import Key
from specsim.core._types import Ints

#: Nonce, kind and size of a frame; a size, or number, of parts of a question.
FRAME, SIZE = struct.Struct("!16sBQ"), struct.Struct("!Q")
#: The most bytes of text in a frame.
MOST_TEXT = 2**16

Arrays = dict[str, NDArray[Any] | None]


class Kind(IntEnum):
    """The kinds of frames: the declarations of the function, rows of an answer, how a contract broke, or
    which lines of the function no call ran."""

    READY = 1
    REFUSED = 2
    ROWS = 3
    CONTRACT = 4
    PATH = 5
    LINES = 6


@dataclass(frozen=True)
class RowsAsked:
    """Verify rows, in calls of `size` rows each, with one generator seeded with `rng`.

    `arrays` are draft_tokens, p, q (None if it is withheld), `parents` for a verifier of trees, and the
    declared `lengths` and `uniforms`. With a `bank`, p or q are arrays "p NAME" and "q NAME" [K, V] of its
    name, and `places` [rows, γ+1] has the number of the row at each place.

    An answer has `width` integers for each row: the tokens, padded with -1; for a tree the accepted nodes,
    padded with -1, and the token after them. Inputs are `compared` with copies after the calls."""

    arrays: Arrays
    seeds: list[int | None] | None
    size: int
    width: int
    rng: tuple[int, ...]
    first: int
    timeout: float
    compared: bool = False
    bank: str = ""

    @property
    def rows(self) -> int:
        drafted = self.arrays["draft_tokens"]
        assert drafted is not None
        return len(drafted)


@dataclass(frozen=True)
class SequencesAsked:
    """Decode the request of `case` `rows` times, with the seeds [*key, first], [*key, first + 1], …

    An answer has the new tokens of each sequence, padded with -1."""

    case: DecoderCase
    key: Key
    first: int
    rows: int
    timeout: float

    @property
    def width(self) -> int:
        """The most tokens of a sequence."""
        return self.case.max_new_tokens


Asked = RowsAsked | SequencesAsked


class Callee(Protocol):
    """A user's function, here or in a child process."""

    @property
    def declared(self) -> Declared: ...

    @property
    def device(self) -> Device: ...

    @property
    def origin(self) -> Origin: ...

    def ask(self, asked: Asked) -> None:
        """Begin with a question; a child process then works on it."""

    def left(self) -> dict[int, set[int]]:
        """Lines that no watched call ran, by the first line of their function, if calls entered it."""

    def read(self, asked: Asked) -> Iterator[Ints]:
        """The answers int64 [n, width] in turn, `asked.rows` rows, or BrokenVerifier or NotADraftPath."""


def answer(callee: Callee, asked: Asked) -> Ints:
    """The whole answer int64 [rows, width] to a question. Raises as `Callee.read`."""
    callee.ask(asked)
    return np.concatenate(list(callee.read(asked)))


def send_question(end: socket, nonce: bytes, asked: Asked | None, sent: Arrays) -> Arrays:
    """Send `asked`, without the arrays of `sent`, those that the child has; return those that it has now.

    None asks for the lines of `Callee.left`."""
    if not isinstance(asked, RowsAsked):
        # the child has the same battery
        _send(end, (nonce, asked and replace(asked, case=asked.case.name), ()))  # type: ignore[arg-type]
        return sent if asked is None else {}
    given = asked.arrays.items()
    new = {name: one for name, one in given if one is None or one is not sent.get(name)}
    plain = {name: None if one is None else np.ascontiguousarray(one) for name, one in new.items()}
    _send(end, (nonce, replace(asked, arrays=plain), tuple(asked.arrays)))
    return _kept(sent, asked) | asked.arrays


def receive_question(end: socket, kept: Arrays) -> tuple[bytes, Asked | None, Arrays]:
    """The child's side of `send_question`. Raises EOFError if the parent is gone."""
    (parts,) = SIZE.unpack(_receive(end, SIZE.size))
    sizes = [SIZE.unpack(_receive(end, SIZE.size))[0] for _ in range(parts)]
    text, *buffers = [_receive(end, size) for size in sizes]
    nonce, asked, names = pickle.loads(text, buffers=buffers)
    if asked is None:
        return nonce, None, kept
    if isinstance(asked, SequencesAsked):
        cases = {case.name: case for case in decoder_battery()}
        return nonce, replace(asked, case=cases[str(asked.case)]), {}
    arrays = {name: asked.arrays[name] if name in asked.arrays else kept[name] for name in names}
    return nonce, replace(asked, arrays=arrays), _kept(kept, asked) | arrays


def _kept(before: Arrays, asked: RowsAsked) -> Arrays:
    """The arrays of `before` that are kept: banks, as long as there are questions with banks."""
    return {name: array for name, array in before.items() if " " in name} if asked.bank else {}


def _send(end: socket, question: tuple[bytes, Asked | None, tuple[str, ...]]) -> None:
    """Send the number of parts, the size of each, and the parts: the pickle, and the bytes of its arrays."""
    arrays = list[pickle.PickleBuffer]()
    text: Any = pickle.dumps(question, protocol=5, buffer_callback=arrays.append)
    parts = [text, *(array.raw() for array in arrays)]
    end.sendall(b"".join(map(SIZE.pack, (len(parts), *map(len, parts)))))
    for part in parts:
        end.sendall(part)


def _receive(end: socket, size: int) -> memoryview:
    """The next `size` bytes. Raises EOFError if the other side has closed."""
    content = view = np.empty(size, np.uint8).data
    while len(view):
        got = end.recv_into(view)
        if not got:
            raise EOFError
        view = view[got:]
    return content


def send_frame(end: socket, nonce: bytes, kind: Kind, content: bytes) -> None:
    end.sendall(FRAME.pack(nonce, kind, len(content)) + content)
