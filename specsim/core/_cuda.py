"""The one place where numba's CUDA target is imported; it needs the extra `cuda`.

Device code must compute what kernels compute on the CPU, to the last bit. Compilers for GPUs contract x·y + z
to one fused multiply-add, which rounds once instead of twice, and numba-cuda has no option against it. So
device code writes a product to which something is added, or from which something is subtracted, as
`product(x, y)`. `fastmath` is never used.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import numba_cuda  # noqa: F401  # without it numba has a target of its own, which is not maintained
from numba import cuda
from numba.cuda import libdevice
from numba.cuda.core import config
from numba.cuda.cudadrv.driver import CudaAPIError, LinkerError

#: Whether kernels run in numba's simulator, as Python, with NUMBA_ENABLE_CUDASIM=1.
SIMULATED = bool(config.ENABLE_CUDASIM)

if SIMULATED:

    @cuda.jit(device=True)
    def product(x, y):
        return x * y

else:

    @cuda.jit(device=True)
    def product(x, y):
        """x·y, rounded: the compiler contracts no multiplication that names its rounding."""
        return libdevice.dmul_rn(x, y)


#: What the driver, the compiler and the linker raise; their errors for missing libraries are ImportErrors.
FAILURES = (CudaAPIError, LinkerError, ImportError)


class DeviceError(ValueError):
    """There is no GPU, or it cannot do what it was asked for."""


@contextmanager
def explained() -> Iterator[None]:
    """Raise DeviceError for what fails within."""
    try:
        yield
    except FAILURES as error:
        reason = " ".join(str(error).split()).rstrip(" :.")
        raise DeviceError(
            f"device: 'cuda' cannot be used here ({reason}); leave device out, to count on the CPU"
        ) from error


def current_device() -> tuple[str, int, float]:
    """The name of the current GPU, the number of its multiprocessors, and its free bytes.

    Raises DeviceError if there is none, or no compiler for it."""
    with explained():
        context = cuda.current_context()
    free = context.get_memory_info().free
    if SIMULATED:
        return "simulated GPU", 1, free
    if not cuda.is_available():
        raise DeviceError(
            "device: 'cuda' finds no compiler for the GPU (libNVVM): pip install 'specsim-decoding[cuda]', "
            "or leave device out, to count on the CPU"
        )
    name = context.device.name
    return name.decode() if isinstance(name, bytes) else name, context.device.MULTIPROCESSOR_COUNT, free
