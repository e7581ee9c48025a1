"""NumPy arrays as the arrays that a verifier declares, and its result back; on the CPU nothing is copied."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from specsim.auditing._verifier.contract import Declared

__all__ = ["converter", "to_numpy"]


def converter(declared: Declared) -> Callable[[Any], Any]:
    """A function that hands over one array. Raises ValueError where the library is missing.

    NumPy arrays are handed over read-only, so that a verifier that writes to them is stopped where it does.
    """
    if declared.arrays == "numpy":
        return _read_only
    try:
        return _to_torch(declared.device) if declared.arrays == "torch" else _to_jax()
    except ImportError as error:
        raise ValueError(f"the verifier asks for {declared.arrays} arrays: {error}; install it") from error


def to_numpy(value: Any) -> Any:
    """A tensor of torch or JAX as a NumPy array; anything else as `numpy.asarray` takes it."""
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    return np.asarray(value)


def _read_only(array: Any) -> Any:
    view = array.view()
    view.flags.writeable = False
    return view


def _to_torch(device: str) -> Callable[[Any], Any]:
    import torch

    def convert(array: Any) -> Any:
        if not array.flags.writeable:  # which torch has no notion of
            array = array.copy()
        if array.dtype.name == "bfloat16":  # NumPy has no such type of its own
            tensor = torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
        else:
            tensor = torch.from_numpy(array)
        return tensor.to(device)

    return convert


def _to_jax() -> Callable[[Any], Any]:
    import jax.numpy as jnp

    return jnp.asarray
