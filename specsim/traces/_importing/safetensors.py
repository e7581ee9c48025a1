"""Safetensors files with the array names of `specsim.traces._steps.from_columns`; memory-mapped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from specsim.traces._steps import Column, Logged, Source, from_columns

SUFFIXES = (".safetensors",)

NAMES = ("F64", "F32", "F16", "I64", "I32", "I16", "I8", "U32", "U16", "U8")
DTYPES: dict[str, np.dtype[Any]] = {
    name: np.dtype(f"{name[0].lower()}{int(name[1:]) // 8}") for name in NAMES
}
DTYPES["BF16"] = np.dtype(ml_dtypes.bfloat16)


def read(source: Source) -> Logged:
    """The steps of the tensors. Raises ValueError for a file that is cut, or of another format."""
    size = source.path.stat().st_size
    with source.path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if 8 + length > size:
            raise ValueError(f"{source.path}: not a safetensors file, its header would be longer than it")
        text = file.read(length)
    columns: dict[str, Column] = {}
    try:
        for name, entry in json.loads(text).items():
            if name != "__metadata__":
                columns[name] = _Tensor(source.path, 8 + length, size, entry)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{source.path}: not a safetensors file that can be read ({error!r})") from None
    return from_columns(columns, source)


class _Tensor:
    def __init__(self, path: Path, start: int, size: int, entry: dict[str, Any]):
        self.dtype, self.shape = DTYPES[entry["dtype"]], tuple(entry["shape"])
        begin, end = entry["data_offsets"]
        if start + end > size:
            raise ValueError(f"cut, {start + end - size} bytes are missing")
        raw = (
            np.asarray(np.memmap(path, np.uint8, "r", start + begin, (end - begin,))) if end > begin else b""
        )
        self._array = np.frombuffer(raw, self.dtype).reshape(self.shape)

    def read(self, start: int, stop: int) -> NDArray[Any]:
        return self._array[start:stop]
