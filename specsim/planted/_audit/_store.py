"""The texts of a run, kept as JSON Lines as they arrive, so that a run can be continued and judged again."""

import json
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from specsim.core._files import check_target, naming, open_file
from specsim.core._json import parse_json
from specsim.planted._engines._requests import Completion, Failure
from specsim.planted._engines._texts import TextCompletion

#: The first line of a file says what it is. Version 1 had no checksums.
FORMAT = "specsim engine texts 2"
CHECKSUM = "crc32"


class TextStore:
    """The texts of one run, in a file or in memory only (`path` None).

    The first line of a file is a header: the run's settings, which a continued run must share. Every further
    line is one completion or one failure. Every line has a checksum. A text is kept once: a second one with
    the same number and index is not added.

    Raises
    ------
    ValueError
        If the file is of another run, or is not such a file; the message names the line.
    """

    def __init__(self, path: Path | None, header: dict[str, Any]):
        self.path = path
        self.completions: dict[tuple[int, int], Completion] = {}
        self.failures: dict[int, Failure] = {}
        if path is None:
            return
        check_target(path)
        if path.exists():
            kept = read_header(path)
            if different := [name for name in header if kept.get(name) != header[name]]:
                first = different[0]
                raise ValueError(
                    f"{path}: these texts are of another run: its {', '.join(different)} differ ({first} "
                    f"{_short(kept.get(first))}, now {_short(header[first])}); give another folder, or judge "
                    f"them as they are with 'specsim audit engine {path} --planted DIR'"
                )
            for answer in _read(path):
                self._keep(answer)
            _end_last_line(path)
        else:
            _append(path, {"format": FORMAT} | header)

    def add(self, answers: Iterable[Completion | Failure]) -> Iterator[Completion | Failure]:
        """Keep each of `answers` that is new, write it, and hand it on."""
        for answer in answers:
            if self._keep(answer):
                if self.path is not None:
                    kind = "completion" if isinstance(answer, Completion) else "failure"
                    _append(self.path, {kind: asdict(answer)})
                yield answer

    def _keep(self, answer: Completion | Failure) -> bool:
        if isinstance(answer, Failure):
            self.failures[answer.number] = answer
            return True
        key = answer.number, answer.index
        self.failures.pop(answer.number, None)  # a later try succeeded
        return self.completions.setdefault(key, answer) is answer

    def texts(self) -> list[Completion]:
        """All completions, by request and index: the same whatever order they arrived in."""
        return [self.completions[key] for key in sorted(self.completions)]


def read_store(path: Path) -> tuple[dict[str, Any], TextStore]:
    """The header of a file of texts and what is in it, which stays as it is. Raises ValueError for others."""
    header, store = read_header(path), TextStore(None, {})
    for answer in _read(path):
        store._keep(answer)
    return header, store


def _short(value: Any) -> str:
    """A value of a header, cut to a length that can be printed."""
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def read_header(path: Path) -> dict[str, Any]:
    """The settings in the first line of a file of texts."""
    with open_file(path) as file:
        header = _parsed(file.readline(), path, 1)
    if not isinstance(header, dict) or header.pop("format", None) != FORMAT:
        raise ValueError(f"{path}, line 1: expected the header of a file that specsim audit engine wrote")
    return header


def _read(path: Path) -> Iterator[Completion | Failure]:
    """The answers in a file. A last line that was cut by a crash is left out."""
    with open_file(path) as file:
        file.readline()
        for number, line in enumerate(file, start=2):
            if not line.endswith(b"\n"):
                return
            entry = _parsed(line, path, number)
            try:
                ((kind, fields),) = entry.items()
                yield _completion(fields) if kind == "completion" else Failure(**fields)
            except (AttributeError, TypeError, ValueError, KeyError) as error:
                raise ValueError(f"{path}, line {number}: not a completion or a failure ({error})") from error


def _completion(fields: dict[str, Any]) -> Completion:
    top, kind = fields["top"], Completion
    if "forms" in fields:  # of a server that was asked by text
        kind = TextCompletion
        fields = fields | {"forms": {name: tuple(pieces) for name, pieces in fields["forms"].items()}}
    return kind(
        **fields
        | {
            "tokens": tuple(fields["tokens"]),
            "logprobs": None if fields["logprobs"] is None else tuple(fields["logprobs"]),
            "top": None if top is None else tuple({int(k): v for k, v in one.items()} for one in top),
        }
    )


def _parsed(line: bytes, path: Path, number: int) -> Any:
    try:
        entry = parse_json(line)
    except ValueError as error:
        raise ValueError(f"{path}, line {number}: not JSON ({error})") from error
    if isinstance(entry, dict) and entry.pop(CHECKSUM, None) != _checksum(entry):
        if number == 1:
            raise ValueError(
                f"{path}, line 1: not the header of a file that specsim audit engine wrote, or damaged: its "
                "checksum is wrong"
            )
        raise ValueError(
            f"{path}, line {number}: damaged, its checksum is wrong; delete the line, and it is asked for "
            "again"
        )
    return entry


def _checksum(entry: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(entry, sort_keys=True).encode())


def _append(path: Path, entry: dict[str, Any]) -> None:
    with naming(path), path.open("a", encoding="utf-8") as file:
        plain = json.loads(json.dumps(entry, allow_nan=False))  # as it will be read
        file.write(json.dumps(plain | {CHECKSUM: _checksum(plain)}) + "\n")


def _end_last_line(path: Path) -> None:
    """Cut a last line that a crash left unfinished, so that the next one begins on a line of its own."""
    with path.open("rb+") as file:
        data = file.read()
        if data and not data.endswith(b"\n"):
            file.truncate(data.rfind(b"\n") + 1)
