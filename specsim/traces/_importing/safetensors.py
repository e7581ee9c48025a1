"""Safetensors files with the array names of `specsim.traces._steps.from_columns`; memory-mapped."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specsim.core._files import open_file
from specsim.core._json import parse_json
from specsim.core._tensors import TYPES
from specsim.traces._steps import Column, Logged, Source, from_columns

SUFFIXES = (".safetensors",)
#: Bytes, at most; a longer header is none.
MOST_HEADER = 10**8


def read(source: Source) -> Logged:
    """The steps of the tensors. Raises ValueError for a file that is cut, or of another format."""
    size = source.path.stat().st_size
    with open_file(source.path) as file:
        length = int.from_bytes(file.read(8), "little")
        if 8 + length > min(size, MOST_HEADER):
            raise ValueError(f"{source.path}: is shorter than its header, or no safetensors; save it again")
        text = file.read(length)
    try:
        columns: dict[str, Column] = {
            name: _tensor(source.path, 8 + length, size, entry)
            for name, entry in parse_json(text).items()
            if name != "__metadata__"
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{source.path}: cannot be read as safetensors ({error!r}); save it again") from None
    return from_columns(columns, source)


def _tensor(path: Path, start: int, size: int, entry: dict[str, Any]) -> NDArray[Any]:
    dtype, shape, (begin, end) = TYPES[entry["dtype"]], entry["shape"], entry["data_offsets"]
    if start + end > size:
        raise ValueError(f"cut, {start + end - size} bytes are missing")
    raw = np.asarray(np.memmap(path, np.uint8, "r", start + begin, (end - begin,))) if end > begin else b""
    return np.frombuffer(raw, dtype).reshape(shape)
