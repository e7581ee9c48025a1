"""Reading and writing files. Only regular files are opened, and errors of the system name the file.

A FIFO would make a reader wait for ever, a device never ends, and replacing one by a file would break the
machine. So a function of this module opens or checks every path that a user gives."""

import csv
import errno
import hashlib
import io
import os
import pkgutil
import platform
import stat
import tempfile
import time
import tomllib
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from io import BufferedReader, FileIO, TextIOWrapper
from pathlib import Path
from typing import Any

PathLike = str | os.PathLike[str]

#: Temporary files that are older are of no process that still writes, on whatever machine.
ABANDONED = 24 * 3600
#: Bytes that a reader asks the system for at a time.
BUFFER = 2**17


def check_file(path: PathLike) -> Path:
    """`path`, a regular file or a link to one. Raises ValueError for another, OSError for a missing one."""
    place = _as_path(path)
    mode = place.stat().st_mode
    if stat.S_ISDIR(mode):
        raise ValueError(f"{path}: a folder, not a file; give a file in it")
    if not stat.S_ISREG(mode):
        raise ValueError(f"{path}: {_kind(mode)}, not a regular file; copy its content to one")
    return place


class _Named(FileIO):
    """A file that is read, and whose errors name it, as those of the system do not."""

    def readinto(self, buffer: Any) -> int | None:
        with naming(str(self.name)):
            return super().readinto(buffer)

    def readall(self) -> bytes:
        with naming(str(self.name)):
            return super().readall()


def open_file(path: PathLike) -> BufferedReader:
    """The regular file `path`, open for reading; raises as `check_file`."""
    return BufferedReader(_Named(check_file(path)), BUFFER)


def sha256_of(path: PathLike) -> str:
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_text(path: PathLike) -> str:
    """The text of a regular file in UTF-8; raises as `check_file`, and ValueError for other text."""
    try:
        with open_file(path) as file, TextIOWrapper(file, encoding="utf-8") as text:
            return text.read()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not text in UTF-8, at byte {error.start + 1}; convert it") from None


def read_columns(path: PathLike, names: Sequence[str]) -> dict[str, list[float]]:
    """The columns `names` of a CSV file as numbers. Raises as `read_cells`, and for other cells."""
    found: dict[str, list[float]] = {name: [] for name in names}
    for line, row in read_cells(path, names):
        for name, cell in row.items():
            try:
                if not cell.isascii() or "_" in cell:  # which Python reads too
                    raise ValueError
                found[name].append(float(cell))
            except ValueError:
                raise ValueError(f"{path}:{line}: {name} {cell!r} is not a number; correct it") from None
    return found


def read_cells(
    path: PathLike, names: Sequence[str], optional: Sequence[str] = ()
) -> list[tuple[int, dict[str, str]]]:
    """The lines of a CSV file whose first line names its columns, in any order, with the cells of `names`,
    and of `optional` if present. ValueError, with the line, where a column or cell is missing or repeated."""
    rows = csv.DictReader(io.StringIO(read_text(path).removeprefix("\ufeff")), skipinitialspace=True)
    try:
        header, cells = rows.fieldnames or [], [(rows.line_num, row) for row in rows]
    except csv.Error as error:
        raise ValueError(f"{path}:{rows.line_num + 1}: not CSV ({error}); save it again") from None
    for name in (*names, *optional):
        if name not in header and name in names:
            expected = ", ".join((*names, *optional))
            raise ValueError(f"{path}: no column {name!r} in its first line; expected {expected}")
        if header.count(name) > 1:
            raise ValueError(f"{path}: {header.count(name)} columns {name!r} in its first line; keep one")
    for line, row in cells:
        for name in names:
            if not row[name]:
                raise ValueError(f"{path}:{line}: no {name}; fill the gap, or leave out the line")
    wanted = [name for name in (*names, *optional) if name in header]
    return [(line, {name: (row[name] or "").strip() for name in wanted}) for line, row in cells]


def read_table(name: str) -> dict[str, Any]:
    """The table data/NAME.toml of the package."""
    return tomllib.loads(read_text(Path(__file__).parents[1] / f"data/{name}.toml"))


def check_target(path: PathLike) -> Path:
    """The file that writing to `path`, or through the symlink `path`, makes. Raises ValueError or OSError."""
    place = Path(os.path.realpath(_as_path(path)))
    if not place.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "there is no such folder", str(place.parent))
    if os.path.lexists(place) and not stat.S_ISREG(mode := place.stat().st_mode):
        raise ValueError(f"{path}: {_kind(mode)}, not a regular file, and is not replaced; give another path")
    return place


def probe_file(path: PathLike) -> None:
    """Raise, before the work, if `path` could not be written after it: as `check_target`, and OSError."""
    _probe(check_target(path).parent, path)


def make_folder(path: PathLike) -> Path:
    """Make the folder `path` unless it is there. Raises OSError if no file can be written in it."""
    folder = _no_file(path)
    folder.mkdir(parents=True, exist_ok=True)
    _probe(folder, folder)
    return folder


def check_new_folder(path: PathLike) -> Path:
    """Raise FileExistsError unless `path` is an empty folder or can be made, OSError if not writable."""
    folder = _no_file(path)
    if folder.exists() and any(folder.iterdir()):
        raise FileExistsError(f"{folder}: is not empty; give a new folder")
    above = folder.absolute()
    while not os.path.lexists(above):
        above = above.parent
    if not above.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, "not a folder, so none can be made in it", str(above))
    _probe(above, folder)
    return folder


@contextmanager
def atomic_write(path: PathLike) -> Iterator[Path]:
    """Give a temporary file to fill, which replaces `path`, or what the symlink `path` leads to, at the end,
    or is removed on an exception. It is beside it; those that killed processes left of this path are removed.
    Raises as `check_target`, and OSError, naming `path`, if it cannot be written."""
    place = check_target(path)
    temporary = place.with_name(f".{place.name}.{_machine()}-{os.getpid()}.tmp")
    with naming(path, temporary):
        _remove_abandoned(place)
        try:
            yield temporary
            mask = os.umask(0)  # which can only be read by setting it
            os.umask(mask)
            os.chmod(temporary, 0o666 & ~mask)  # the writer may have made it private
            _sync(temporary)
            os.replace(temporary, place)
            _sync(place.parent)
        finally:
            with suppress(OSError):  # as where the name is too long; an error says so already
                temporary.unlink(missing_ok=True)


def write_text(path: PathLike, text: str) -> None:
    """Write `text` to `path` in UTF-8, atomically; what UTF-8 cannot hold, lone surrogates, as \\udcff."""
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")


@contextmanager
def naming(path: PathLike, *others: PathLike) -> Iterator[None]:
    """Within this an error of the system names `path` if it names no file, or one of `others`."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename not in (None, *others, *map(str, others)):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def _no_file(path: Any) -> Path:
    """`path`, a folder or nothing yet."""
    folder = _as_path(path)
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"{folder}: a file, not a folder; give another path")
    return folder


def _as_path(path: Any) -> Path:
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"path: expected a str or a Path, got {type(path).__name__}")
    if not os.fspath(path) or "\0" in str(path):
        raise ValueError(f"path: {os.fspath(path)!r} is not the name of a file or folder; give another")
    return Path(path)


def _kind(mode: int) -> str:
    """What is not a regular file, in words."""
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket"}
    return kinds.get(stat.S_IFMT(mode), "a device")


def _probe(folder: Path, path: PathLike) -> None:
    """Raise OSError, naming `path`, if no file can be made in `folder`."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OSError(error.errno, f"cannot be written: {error.strerror}", str(path)) from None


def _machine() -> str:
    """This machine in the names of temporary files: process ids mean something only on their own."""
    return f"{zlib.crc32(platform.node().encode()):08x}"


def _remove_abandoned(place: Path) -> None:
    """Remove the temporary files of `place` whose process has ended, as after a kill."""
    start = f".{place.name}."
    with os.scandir(place.parent) as entries:
        left = [entry for entry in entries if entry.name.startswith(start) and entry.name.endswith(".tmp")]
    for entry in left:
        machine, _, process = entry.name[len(start) : -len(".tmp")].partition("-")
        with suppress(OSError):  # another process may have been quicker
            old = time.time() - entry.stat(follow_symlinks=False).st_mtime > ABANDONED
            ours = machine == _machine() and process.isdecimal()
            if (ours and not _runs(int(process))) or (old and process.isdecimal()):
                os.unlink(entry.path)


def _runs(process: int) -> bool:
    """Whether there is a process of this number other than this one."""
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # it is another user's
        return True
    return process != os.getpid()


def _sync(path: Path) -> None:
    """Wait until the contents of a file, or the entries of a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def modules_beside(file: PathLike) -> list[str]:
    """The names of modules and packages in the folder of `file`, sorted; nothing is imported."""
    return sorted(module.name for module in pkgutil.iter_modules([str(Path(file).parent)]))
