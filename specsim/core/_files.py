"""Files are written whole or not at all."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["atomic_write"]


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary file to fill, which then takes the place of `path` in one piece, or is removed.

    It stands beside `path`, is forced to disk before the change, and leaves what was there until then.
    """
    place = Path(path)
    if not place.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "there is no such folder", str(place.parent))
    temporary = place.with_name(f".{place.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        os.chmod(temporary, _default_mode())  # whoever wrote it may have kept it to themselves
        _sync(temporary)
        os.replace(temporary, place)
        _sync(place.parent)
    finally:
        temporary.unlink(missing_ok=True)


def _default_mode() -> int:
    """The permissions of a new file; the mask can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def _sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
