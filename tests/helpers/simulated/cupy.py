"""A stand-in for CuPy, whose arrays are in the memory of the CPU; as CuPy's, they become arrays of NumPy by
`get` alone.

GPUS in the environment is the number of its GPUs, and FREE the free bytes of each."""

from __future__ import annotations

import os
from types import SimpleNamespace

import numpy as np


class ndarray:
    __cuda_array_interface__ = None

    def __init__(self, here):
        self._here = here

    def get(self):
        return self._here.copy()

    def __array__(self, *_, **__):
        raise TypeError("Implicit conversion to a NumPy array is not allowed")

    def copy(self):
        return ndarray(self._here.copy())

    def take(self, places, axis):
        return ndarray(self._here.take(places._here, axis=axis))

    def all(self):
        return ndarray(self._here.all())

    def __bool__(self):
        return bool(self._here)

    def __eq__(self, other):
        return ndarray(self._here == other._here)

    def __getitem__(self, where):
        return ndarray(self._here[where])

    def __setitem__(self, where, value):
        self._here[where] = value

    def __len__(self):
        return len(self._here)

    @property
    def shape(self):
        return self._here.shape

    @property
    def dtype(self):
        return self._here.dtype


class Device:
    def __init__(self, number):
        self.number = number

    def use(self):
        if self.number >= int(os.environ.get("GPUS", "1")):
            raise RuntimeError("cudaErrorInvalidDevice: invalid device ordinal")


def asarray(array):
    return ndarray(np.array(array))


def empty(size):
    return ndarray(np.empty(size))


cuda = SimpleNamespace(
    Device=Device,
    runtime=SimpleNamespace(
        getDeviceProperties=lambda number: {"name": b"Simulated GPU %d" % number},
        memGetInfo=lambda: (int(os.environ.get("FREE", 2**40)), 2**40),
    ),
)
