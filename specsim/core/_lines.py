"""The lines of JSON Lines files, read one by one whatever the size of the files."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from specsim.core._files import check_file, open_file
from specsim.core._json import RefusedError, parse_json
from specsim.core._progress import Progress, silent

SUFFIXES = (".jsonl", ".ndjson")
#: Longer lines are not read.
LONGEST = 32 * 2**20
#: Bytes between two calls of `progress`.
STRIDE = 2**22


class Line(NamedTuple):
    """A line and its place; `record` is None where `problem` says why it cannot be read."""

    place: str
    record: Any
    problem: str = ""


def log_files(path: Path) -> list[Path]:
    """`path`, or the JSON Lines files in the folder `path`. Raises as `check_file`."""
    found = [path]
    if path.is_dir():
        found = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES)
        if not found:
            raise ValueError(f"{path}: no file in it ends in {' or '.join(SUFFIXES)}; give another folder")
    for file in found:
        check_file(file)
    return found


def read_lines(files: list[Path], progress: Progress = silent) -> Iterator[Line]:
    """The lines of `files` that are not empty; `progress` is called with bytes read, and their total."""
    total, before, told = sum(file.stat().st_size for file in files), 0, 0
    for path in files:
        with open_file(path) as file:
            for number, line in enumerate(split_lines(file), 1):
                done = before + file.tell()
                if done - told >= STRIDE:
                    progress(done, total)
                    told = done
                if line is None or line.strip():
                    yield read_line(line, f"{path}:{number}")
        before += path.stat().st_size
    progress(total, total)


def split_lines(file: BinaryIO) -> Iterator[bytes | None]:
    """The lines of a file; None for one that is too long. Raises ValueError where that is no text."""
    while line := file.readline(LONGEST):
        if len(line) < LONGEST or line.endswith(b"\n"):
            yield line
            continue
        if b"\0" in line:
            raise ValueError(f"{file.name}: bytes 0 and no end of a line; give a text file, not a binary one")
        while line and not line.endswith(b"\n"):
            line = file.readline(LONGEST)
        yield None


def decode_line(line: bytes, unique: bool = True) -> Any:
    """The value in a line of JSON, as `parse_json`. Raises RefusedError that says in a few words why not."""
    if line.startswith(b"\x1f\x8b"):
        raise RefusedError("compressed; unpack the file")
    try:
        return parse_json(line.decode("utf-8"), unique)
    except UnicodeDecodeError as error:
        raise RefusedError(f"not UTF-8 at byte {error.start + 1}; convert the file") from None
    except json.JSONDecodeError as error:
        raise RefusedError(f"not JSON at character {error.pos + 1}") from None
    except RefusedError:
        raise
    except ValueError:
        raise RefusedError("a number of too many digits") from None


def read_line(line: bytes | None, place: str) -> Line:
    """A line, which is None if it is too long."""
    if line is None:
        return Line(place, None, f"longer than {LONGEST // 2**20} MiB")
    try:
        return Line(place, decode_line(line))
    except RefusedError as error:
        return Line(place, None, str(error))
