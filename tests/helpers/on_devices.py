"""Verifiers of arrays on devices. Each copies its rows back, and decides as one of NumPy arrays does."""

from __future__ import annotations

import numpy as np
import verifiers


def here(array):
    """An array of any library as a NumPy array of 64 bits."""
    array = array.get() if hasattr(array, "get") else np.asarray(array)
    return array.astype(np.int64 if array.dtype.kind in "iu" else np.float64)


def of(arrays, decide=verifiers.right, act=None, **promise):
    """A verifier of `arrays`, which first calls `act` with draft_tokens, p and q."""

    def verify(draft_tokens, p, q, rng):
        handed = [here(array) for array in (draft_tokens, p, q)]
        if act is not None:
            act(draft_tokens, p, q)
        return decide(*handed, rng)

    verify.declared = {"arrays": arrays, **promise}
    return verify


def zero_p(draft_tokens, p, q):
    p[:] = 0


numpy = of("numpy")
cupy = of("cupy")
cupy_wrong = of("cupy", verifiers.resamples_from_target)
cupy_alters = of("cupy", act=zero_p)
torch = of("torch")
torch_wrong = of("torch", verifiers.resamples_from_target)
torch_alters = of("torch", act=zero_p)
jax = of("jax", dtypes="float32")
numpy_float32 = of("numpy", dtypes="float32")
