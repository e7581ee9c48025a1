"""Where a user's function comes from: its file, and the versions of the libraries loaded with it."""

import inspect
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from specsim.core._files import sha256_of
from specsim.core._provenance import installed_version

#: Libraries that verifiers call, by the name that is imported.
LIBRARIES = (
    "numpy", "torch", "jax", "mlx", "triton", "transformers", "vllm", "sglang", "flashinfer", "tensorrt_llm",
    "lmdeploy", "mlx_lm", "xllamacpp", "llama_cpp", "onnxruntime_genai", "openvino_genai", "cupy", "numba",
)  # fmt: skip
#: The most characters of a name, a path or a version.
LONGEST = 500


@dataclass(frozen=True)
class Origin:
    """The `file` and `line` of a function, the SHA-256 `digest` of that file, the versions of `libraries`,
    and the lines that no call ran, `unseen`; empty or 0 if not known. A verifier in a process of its own says
    this of itself: it is shown, and nothing depends on it."""

    file: str = ""
    line: int = 0
    digest: str = ""
    libraries: dict[str, str] = field(default_factory=dict)
    unseen: tuple[int, ...] = ()

    @classmethod
    def told(cls, said: Any) -> "Origin":
        """From what a child process says. Raises ValueError, TypeError or KeyError if that is not one."""
        libraries = said["libraries"]
        texts = [said["file"], said["digest"], *libraries, *libraries.values()]
        if not isinstance(libraries, Mapping) or not all(isinstance(text, str) for text in texts):
            raise TypeError("the verifier's origin is not text")
        if any(len(text) > LONGEST for text in texts) or len(libraries) > len(LIBRARIES):
            raise ValueError("the verifier's origin is too long")
        return cls(said["file"], int(said["line"]), said["digest"], dict(libraries))


def origin_of(function: Callable[..., Any]) -> Origin:
    while isinstance(function, partial):
        function = function.func
    file, line = "", 0
    with suppress(Exception):  # built-in functions, notebooks, objects whose attributes raise anything
        plain: Any = inspect.unwrap(function)
        plain = plain if inspect.isroutine(plain) else type(plain)
        file = inspect.getsourcefile(plain) or ""
        line = inspect.getsourcelines(plain)[1]
    loaded = {name: sys.modules[name] for name in LIBRARIES if name in sys.modules}
    versions = {  # that of the distribution, or what a module without one says of itself
        name: (installed_version(name, "") or str(getattr(module, "__version__", "unknown")))[:LONGEST]
        for name, module in loaded.items()
    }
    return Origin(file[-LONGEST:], line, digest_of(file) or "", versions)


def digest_of(file: str | None) -> str | None:
    """The SHA-256 of a file, or of the archive that it is in; None if there is no such file."""
    found = file and next(filter(Path.is_file, [Path(file), *Path(file).parents]), None)
    return sha256_of(found) if found else None


def import_places() -> list[str]:
    """Where verifiers are found: as by `python -m`, in the working folder too, unless it was removed."""
    with suppress(FileNotFoundError):
        if (here := os.getcwd()) not in sys.path:
            return [here, *sys.path]
    return sys.path


def source_of(module: str) -> str | None:
    """The file that the import of `module` would run, or None. Nothing is imported."""
    places, parts, file = import_places(), module.split("."), None
    for i in range(len(parts)):
        name = ".".join(parts[: i + 1])
        specs = (finder.find_spec(name, places) for finder in sys.meta_path)
        if (found := next(filter(None, specs), None)) is None:
            return None
        file, places = found.origin, found.submodule_search_locations or []
    return file
