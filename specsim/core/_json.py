"""Text, JSON and JSON Lines that others wrote, or that may be damaged: whatever is wrong is a ValueError."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from specsim.core._files import check_file, open_file, read_text
from specsim.core._progress import Progress, silent

#: The entry of an object with the SHA-256 of all others.
SEAL = "sha256"
SUFFIXES = (".jsonl", ".ndjson")
#: Longer lines are not read.
LONGEST = 32 * 2**20
#: Bytes between two calls of `progress`.
STRIDE = 2**22


def printable(text: str, longest: int = 300, kept: str = "") -> str:
    """`text` from elsewhere, at most `longest` characters; what does not print, except `kept`, is escaped."""
    escaped = (
        one if one.isprintable() or one in kept else one.encode("unicode_escape").decode("ascii")
        for one in text
    )
    written = "".join(escaped)
    return written if len(written) <= longest else f"{written[: longest - 2]} …"


def described(error: BaseException) -> str:
    """The type and the message of an exception, which may refuse to be printed."""
    try:
        said = str(error)
        return f"{type(error).__name__}: {said}" if said else type(error).__name__
    except BaseException:  # raised by its own methods
        return "an exception that cannot be printed"


@contextmanager
def rebuilding(path: Any, remedy: str) -> Iterator[None]:
    """Within this, while the values of the file `path` are rebuilt, each error but those of the system and
    those that begin with the name of the file is a ValueError that does, with what the user can do."""
    try:
        yield
    except (OSError, MemoryError):
        raise
    except Exception as error:
        if isinstance(error, ValueError) and str(error).startswith(str(path)):
            raise
        what = str(error) if isinstance(error, ValueError | TypeError) else repr(error)
        raise ValueError(f"{path}: its values are wrong ({what}); {remedy}") from error


class RefusedError(ValueError):
    """Valid JSON that is not read."""


def parse_json(text: str | bytes, unique: bool = True, finite: bool = False) -> Any:
    """The value that `text` is. Raises ValueError also for what is nested too deeply, if `unique` for a key
    that an object has twice, of whose values Python takes the last, and if `finite` for NaN and ±∞."""
    twice, constant = _object if unique else None, _no_constant if finite else None
    try:
        return json.loads(text, object_pairs_hook=twice, parse_constant=constant)
    except RecursionError:
        raise RefusedError("nested too deeply") from None


def _no_constant(name: str) -> float:
    raise RefusedError(f"{name} is not valid JSON")


def _object(entries: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(entries)
    if len(found) < len(entries):
        twice, _ = Counter(key for key, _ in entries).most_common(1)[0]
        raise RefusedError(f"the key {twice[:80]!r} is in an object twice")
    return found


def sealed(values: Mapping[str, Any]) -> dict[str, Any]:
    """`values` as JSON holds them, with the SHA-256 of its own content. It guards against accidents."""
    plain: dict[str, Any] = json.loads(json.dumps(values))  # JSON has no tuples, and only strings as keys
    return plain | {SEAL: seal_of(plain)}


def seal_of(values: Mapping[str, Any]) -> str:
    """The SHA-256 of all entries but that one, as JSON in ASCII with sorted keys and without blanks."""
    covered = {name: value for name, value in values.items() if name != SEAL}
    return hashlib.sha256(json.dumps(covered, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def read_sealed(file: Path, form: str, version: int | None, remedy: str) -> dict[str, Any]:
    """The sealed object in a file. Raises ValueError, with the remedy, where it is damaged or another one."""
    try:
        content = parse_json(read_text(file))
        digest = seal_of(content) if isinstance(content, dict) else ""
    except ValueError as error:
        raise ValueError(f"{file}: damaged, not JSON ({error}); {remedy}") from None
    if not isinstance(content, dict) or content.get("format") != form:
        raise ValueError(f"{file}: does not say format {form!r}; {remedy}")
    if (said := content.get("version")) != version:
        raise ValueError(f"{file}: version {said!r} of the format; this program reads {version}; {remedy}")
    if content.get(SEAL) != digest:
        raise ValueError(f"{file}: damaged or edited, it does not have the SHA-256 that it states; {remedy}")
    return content


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
