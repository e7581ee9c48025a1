"""Triton's kernels on a CPU: its interpreter, which runs them in Python, milliseconds for each row."""

from __future__ import annotations

import os
import sys
import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np

from specsim.auditing.adapters._engines import EngineMissing


def interpreted() -> dict[str, Any]:
    """The names `triton`, `tl` and `tldevice`, for kernels that are defined from now on to be interpreted.

    The interpreter lacks two things that engines use: CUDA's `log1p`, and masks that are integers.

    Raises
    ------
    EngineMissing
        If Triton is not installed, or was imported before, for a GPU.
    """
    if "triton" not in sys.modules:
        os.environ["TRITON_INTERPRET"] = "1"
    try:
        import triton
        import triton.language as tl
        from triton.runtime import interpreter
    except ImportError as error:
        raise EngineMissing(f"triton is not there ({error}); pip install triton, on Linux") from error
    if not isinstance(tl.cdiv, interpreter.InterpretedFunction):
        raise EngineMissing(
            "Triton's interpreter is not there (triton was imported without TRITON_INTERPRET=1); install "
            "nothing, but set that variable or audit in a process of its own, by the engine's name"
        )

    def log1p(x: Any, _semantic: Any = None) -> Any:
        with np.errstate(all="ignore"):  # of lanes that are masked
            values = np.log1p(x.handle.data)
        return tl.core.tensor(interpreter.TensorHandle(values, x.handle.dtype), x.type)

    # NumPy computes masked lanes too, and warns of what it finds there
    warnings.filterwarnings("ignore", category=RuntimeWarning, module=r"triton\.runtime\.interpreter")
    _take_integers_as_masks(interpreter, tl)
    return {"triton": triton, "tl": tl, "tldevice": SimpleNamespace(log1p=log1p)}


def _take_integers_as_masks(interpreter: Any, tl: Any) -> None:
    builder = interpreter.InterpreterBuilder
    if hasattr(builder, "_takes_integers"):
        return
    builder._takes_integers = True
    load, store = builder.create_masked_load, builder.create_masked_store

    def boolean(mask: Any) -> Any:
        return interpreter.TensorHandle(np.asarray(mask.data).astype(bool), tl.int1)

    builder.create_masked_load = lambda self, ptrs, mask, *rest: load(self, ptrs, boolean(mask), *rest)
    builder.create_masked_store = lambda self, ptrs, value, mask, *rest: store(
        self, ptrs, value, boolean(mask), *rest
    )
