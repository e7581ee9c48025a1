"""NumPy arrays in an .npz file or a folder of .npy files, with the names of
`specsim.traces._steps.from_columns`.

They are memory-mapped; compressed arrays are read as a stream and must be in C order."""

import math
import weakref
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from specsim.core._files import open_file
from specsim.core._tensors import UNREADABLE, check_unique
from specsim.traces._steps import Column, Logged, Source, from_columns

SUFFIXES = (".npz", "")


def read(source: Source) -> Logged:
    """The steps of the arrays. Raises ValueError for files that are not NumPy's, or hold objects."""
    path = source.path
    try:
        if path.is_dir():
            files = sorted(path.glob("*.npy"))
            columns: dict[str, Column] = {f.stem: np.load(f, "r", allow_pickle=False) for f in files}
        else:
            with zipfile.ZipFile(path) as archive:
                members = [member for member in archive.infolist() if member.filename.endswith(".npy")]
            names = [member.filename.removesuffix(".npy") for member in members]
            check_unique("array", names)
            columns = {name: _column(path, member) for name, member in zip(names, members, strict=True)}
    except UNREADABLE as error:
        raise ValueError(f"{path}: cannot be read as arrays of NumPy ({error}); save it again") from None
    return from_columns(columns, source)


def _column(path: Path, member: zipfile.ZipInfo) -> Column:
    """An array inside a zip file: memory-mapped, or if compressed read as a stream."""
    if member.compress_type != zipfile.ZIP_STORED:
        return _Compressed(path, member.filename)
    with open_file(path) as file:
        file.seek(member.header_offset)
        local = file.read(30)
        file.seek(int.from_bytes(local[26:28], "little") + int.from_bytes(local[28:30], "little"), 1)
        shape, fortran, dtype = _header(file, member.filename)
        return np.memmap(path, dtype, "r", file.tell(), shape, "F" if fortran else "C")


def _header(file: IO[bytes], name: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether in Fortran order, and dtype of the array in `file`."""
    form = np.lib.format
    read = form.read_array_header_1_0 if form.read_magic(file) == (1, 0) else form.read_array_header_2_0
    shape, fortran, dtype = read(file)
    if dtype.hasobject:
        raise ValueError(f"{name} holds objects")
    return shape, bool(fortran and len(shape) > 1), dtype


class _Compressed:
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __init__(self, path: Path, name: str):
        self.path, self.name, self._at = path, name, 0
        self._restart()

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        size = math.prod(self.shape[1:]) * self.dtype.itemsize
        if rows.start < self._at:
            self._restart()
        self._take((rows.start - self._at) * size)
        data = self._take((rows.stop - rows.start) * size)
        self._at = rows.stop
        return np.frombuffer(data, self.dtype).reshape(-1, *self.shape[1:])

    def _restart(self) -> None:
        archive = zipfile.ZipFile(self.path)
        weakref.finalize(self, archive.close)
        self._file, self._at = archive.open(self.name), 0
        self.shape, fortran, self.dtype = _header(self._file, self.name)
        if fortran:
            raise ValueError(f"{self.name}: compressed, in Fortran order; save np.ascontiguousarray of it")

    def _take(self, size: int) -> bytes:
        try:
            data = self._file.read(size) if size else b""
        except (zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise ValueError(f"{self.path}, {self.name}: damaged ({error}); save it again") from None
        if len(data) < size:
            raise ValueError(f"{self.path}, {self.name}: {size - len(data)} bytes are missing; save it again")
        return data
