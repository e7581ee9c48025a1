"""Atomic writing of files."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary file to fill, which replaces `path` at the end, or is removed on an exception.

    The temporary file is beside `path` and is flushed to disk before the replacement."""
    place = Path(path)
    if not place.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "there is no such folder", str(place.parent))
    temporary = place.with_name(f".{place.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        os.chmod(temporary, _default_mode())  # the writer may have made it private
        _sync(temporary)
        os.replace(temporary, place)
        _sync(place.parent)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write `text` to `path` in UTF-8, atomically."""
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _default_mode() -> int:
    """The permissions of a new file. The process's mask can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def _sync(path: Path) -> None:
    """Wait until the contents of a file, or the entries of a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
