"""NumPy arrays in an .npz file or a folder of .npy files, with the names of
`specsim.traces._steps.from_columns`.

They are memory-mapped; compressed arrays are read as a stream and must be in C order.
"""

from __future__ import annotations

import math
import weakref
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
from numpy.typing import NDArray

from specsim.traces._steps import Column, Logged, Source, from_columns

SUFFIXES = (".npz", "")


def read(source: Source) -> Logged:
    """The steps of the arrays. Raises ValueError for files that are not NumPy's, or hold objects."""
    columns: dict[str, Column]
    try:
        if source.path.is_dir():
            columns = {file.stem: _Mapped(file) for file in sorted(source.path.glob("*.npy"))}
        else:
            with zipfile.ZipFile(source.path) as archive:
                members = [member for member in archive.infolist() if member.filename.endswith(".npy")]
            columns = {
                member.filename.removesuffix(".npy"): _Member(source.path, member) for member in members
            }
    except (zipfile.BadZipFile, ValueError, EOFError) as error:
        raise ValueError(f"{source.path}: not arrays of NumPy that can be read ({error})") from None
    return from_columns(columns, source)


class _Mapped:
    def __init__(self, path: Path):
        self._array = np.load(path, mmap_mode="r", allow_pickle=False)
        self.shape, self.dtype = self._array.shape, self._array.dtype

    def read(self, start: int, stop: int) -> NDArray[Any]:
        return np.asarray(self._array[start:stop])


class _Member:
    """An array inside a zip file: memory-mapped, or if compressed read as a stream."""

    def __init__(self, path: Path, member: zipfile.ZipInfo):
        self.path, self.name, self._fortran = path, member.filename, False
        with path.open("rb") as file:
            file.seek(member.header_offset)
            local = file.read(30)
            file.seek(int.from_bytes(local[26:28], "little") + int.from_bytes(local[28:30], "little"), 1)
            stored = member.compress_type == zipfile.ZIP_STORED
            if stored:
                fortran = self._header(file)
                order: Literal["F", "C"] = "F" if fortran else "C"
                self._array = np.memmap(path, self.dtype, "r", file.tell(), self.shape, order)
        self._at = 0
        if not stored:
            self._restart()
            if self._fortran:
                raise ValueError(
                    f"{self.name} is compressed, and in Fortran order; save np.ascontiguousarray of it"
                )
        self._stored = stored

    def read(self, start: int, stop: int) -> NDArray[Any]:
        if self._stored:
            return np.asarray(self._array[start:stop])
        size = math.prod(self.shape[1:]) * self.dtype.itemsize
        if start < self._at:
            self._restart()
        self._take((start - self._at) * size)
        data = self._take((stop - start) * size)
        self._at = stop
        return np.frombuffer(data, self.dtype).reshape(stop - start, *self.shape[1:])

    def _header(self, file: IO[bytes]) -> bool:
        """Read shape and dtype; whether the array is in Fortran order."""
        version = np.lib.format.read_magic(file)
        read = (
            np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        )
        self.shape, fortran, self.dtype = read(file)
        if self.dtype.hasobject:
            raise ValueError(f"{self.name} holds objects")
        return bool(fortran and len(self.shape) > 1)

    def _restart(self) -> None:
        archive = zipfile.ZipFile(self.path)
        weakref.finalize(self, archive.close)
        self._file, self._at = archive.open(self.name), 0
        self._fortran = self._header(self._file)

    def _take(self, size: int) -> bytes:
        try:
            data = self._file.read(size) if size else b""
        except (zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise ValueError(f"{self.path}, {self.name}: damaged ({error})") from None
        if len(data) < size:
            raise ValueError(f"{self.path}, {self.name}: cut, {size - len(data)} bytes are missing")
        return data
