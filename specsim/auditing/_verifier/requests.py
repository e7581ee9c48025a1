"""What a user's function is asked, and how parent and child send it to each other over a socket.

The child answers with frames: the nonce of the question, a kind, and the size of what follows. The parent
takes nothing else from it: no object of the child is ever unpickled, and a frame that is not expected means
that the verifier is broken. The parent asks with a header in JSON and the bytes of arrays; an array that the
child got with the question before is not sent again."""

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from socket import socket
from typing import Any, Protocol

import numpy as np

from specsim.adapters._contract import Declared
from specsim.auditing._cases.battery import DecoderCase, decoder_battery
from specsim.auditing._verifier.arrays import Device
from specsim.auditing._verifier.origin import Origin
from specsim.core._streams import Key
from specsim.core._types import Ints, dtype_of

#: Nonce, kind and size of a frame; the size of a question's header.
FRAME, SIZE = struct.Struct("!16sBQ"), struct.Struct("!Q")
#: The most bytes of text in a frame.
MOST_TEXT = 2**16

Arrays = dict[str, Any]


class Kind(IntEnum):
    """What a frame has: declarations, rows of an answer, how a contract broke, or lines that no call ran."""

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
        return len(self.arrays["draft_tokens"])


@dataclass(frozen=True)
class SequencesAsked:
    """Decode the request of `case` `rows` times, with seeds [*key, first + i]; answers are padded with -1."""

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


def send_question(end: socket, nonce: bytes, asked: Asked, sent: Arrays) -> Arrays:
    """Send `asked`, without the arrays of `sent`, those that the child has; return those that it has now."""
    if isinstance(asked, SequencesAsked):
        # the child has the same battery
        _send_header(end, {"nonce": nonce.hex(), "sequences": vars(asked) | {"case": asked.case.name}})
        return {}
    plan = []
    for name, array in asked.arrays.items():
        new = array is not None and array is not sent.get(name)
        plan.append((name, None if array is None else (str(array.dtype), array.shape), new))
    fields = {field: value for field, value in vars(asked).items() if field != "arrays"}
    _send_header(end, {"nonce": nonce.hex(), "rows": fields, "arrays": plan})
    for (_, _, new), array in zip(plan, asked.arrays.values(), strict=True):
        if new and array is not None and array.size:
            end.sendall(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return _kept(sent, asked) | asked.arrays


def _kept(before: Arrays, asked: RowsAsked) -> Arrays:
    """The arrays of `before` that are kept: banks, as long as there are questions with banks."""
    return {name: array for name, array in before.items() if " " in name} if asked.bank else {}


def ask_for_lines(end: socket, nonce: bytes) -> None:
    _send_header(end, {"nonce": nonce.hex(), "lines": True})


def receive_question(end: socket, kept: Arrays) -> tuple[bytes, Asked | None, Arrays]:
    """The child's side of `send_question` and, with None, of `ask_for_lines`. EOFError without a parent."""
    size = bytearray(SIZE.size)
    _receive(end, memoryview(size))
    text = bytearray(SIZE.unpack(size)[0])
    _receive(end, memoryview(text))
    header = json.loads(text)
    nonce = bytes.fromhex(header["nonce"])
    if "lines" in header:
        return nonce, None, kept
    if (sequences := header.get("sequences")) is not None:
        case = next(case for case in decoder_battery() if case.name == sequences["case"])
        return nonce, SequencesAsked(**sequences | {"case": case, "key": tuple(sequences["key"])}), {}
    arrays: Arrays = {}
    for name, form, new in header["arrays"]:
        arrays[name] = kept[name] if form and not new else None
        if new:
            array = np.empty(form[1], dtype=dtype_of(form[0]))
            _receive(end, array.reshape(-1).view(np.uint8).data)
            arrays[name] = array
    fields = header["rows"]
    asked = RowsAsked(arrays, **fields | {"rng": tuple(fields["rng"])})
    return nonce, asked, _kept(kept, asked) | arrays


def send_frame(end: socket, nonce: bytes, kind: Kind, content: bytes) -> None:
    end.sendall(FRAME.pack(nonce, kind, len(content)) + content)


def _receive(end: socket, view: memoryview) -> None:
    """Fill `view`. Raises EOFError if the other side has closed."""
    while len(view):
        if not (got := end.recv_into(view)):
            raise EOFError
        view = view[got:]


def _send_header(end: socket, header: dict[str, Any]) -> None:
    text = json.dumps(header).encode()
    end.sendall(SIZE.pack(len(text)) + text)
