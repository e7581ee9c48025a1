"""Triton's kernels: compiled for a GPU, or interpreted on a CPU, in Python, milliseconds for each row."""

import importlib
import operator
import os
import sys
import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np

from specsim.adapters._engines import EngineMissing


def device() -> str:
    """The device of the kernels: "cuda" where PyTorch finds a GPU, else "cpu"."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def language() -> dict[str, Any]:
    """Return the names `triton`, `tl` and `tldevice`, for kernels of `device()`. Raises EngineMissing."""
    if device() == "cpu":
        return interpreted()
    triton, tl, libdevice = _imported("triton", "triton.language", "triton.language.extra.libdevice")
    return {"triton": triton, "tl": tl, "tldevice": libdevice}


def _imported(*names: str) -> list[Any]:
    try:
        return [importlib.import_module(name) for name in names]
    except ImportError as error:
        raise EngineMissing(f"triton is not there ({error}); pip install triton, on Linux") from error


def interpreted() -> dict[str, Any]:
    """The names `triton`, `tl` and `tldevice` for kernels to be interpreted, with what the interpreter lacks:
    CUDA's `log1p`, and masks that are integers. Raises EngineMissing."""
    if "triton" not in sys.modules:
        os.environ["TRITON_INTERPRET"] = "1"
    triton, tl, interpreter = _imported("triton", "triton.language", "triton.runtime.interpreter")
    if not isinstance(tl.cdiv, interpreter.InterpretedFunction):
        raise EngineMissing(
            "Triton's interpreter is not there (triton was imported without TRITON_INTERPRET=1); set that "
            "variable, or audit in a process of its own, by the engine's name"
        )

    def log1p(x: Any, _semantic: Any = None) -> Any:
        with np.errstate(all="ignore"):  # of lanes that are masked
            values = np.log1p(x.handle.data)
        return tl.core.tensor(interpreter.TensorHandle(values, x.handle.dtype), x.type)

    # NumPy computes masked lanes too, and warns of what it finds there
    warnings.filterwarnings("ignore", category=RuntimeWarning, module=r"triton\.runtime\.interpreter")
    if not hasattr(interpreter, "_is_repaired"):
        interpreter._is_repaired = True
        _take_integers_as_masks(interpreter, tl)
        _patch_once(interpreter)
    return {"triton": triton, "tl": tl, "tldevice": SimpleNamespace(log1p=log1p)}


def get_element(values: Any, place: tuple[Any, ...]) -> Any:
    """The scalar at a place of a block: an operation of Triton for Ascend, for interpreted kernels."""
    import triton.language as tl
    from triton.runtime import interpreter

    scalar = values.handle.data[tuple(map(operator.index, place))]
    return tl.core.tensor(interpreter.TensorHandle(np.array([scalar]), values.handle.dtype), values.dtype)


def _take_integers_as_masks(interpreter: Any, tl: Any) -> None:
    builder = interpreter.InterpreterBuilder
    load, store = builder.create_masked_load, builder.create_masked_store

    def boolean(mask: Any) -> Any:
        return interpreter.TensorHandle(np.asarray(mask.data).astype(bool), tl.int1)

    builder.create_masked_load = lambda self, ptrs, mask, *rest: load(self, ptrs, boolean(mask), *rest)
    builder.create_masked_store = lambda self, ptrs, value, mask, *rest: store(
        self, ptrs, value, boolean(mask), *rest
    )


def _patch_once(interpreter: Any) -> None:
    """Patch the language once for a kernel, and not for every call of a function in it: half of the time."""
    patch, run = interpreter._patch_lang, interpreter.GridExecutor.__call__
    patched: set[int] = set()

    def patch_once(function: Any) -> Any:
        if (seen := id(function.__globals__)) in patched:
            return None
        patched.add(seen)
        return patch(function)

    def run_kernel(self: Any, *arguments: Any, **named: Any) -> None:
        patched.clear()  # the language is restored after a kernel
        run(self, *arguments, **named)

    interpreter._patch_lang, interpreter.GridExecutor.__call__ = patch_once, run_kernel
