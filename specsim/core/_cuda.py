"""The one place where numba's CUDA target is imported; it needs the extra `cuda`.

Device code must compute what kernels compute on the CPU, to the last bit. Compilers for GPUs contract x·y + z
to one fused multiply-add, which rounds once instead of twice, and numba-cuda has no option against it. So
device code writes a product to which something is added, or from which something is subtracted, as
`product(x, y)`. `fastmath` is never used.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numba_cuda  # noqa: F401  # without it numba has a target of its own, which is not maintained
from cuda.pathfinder import DynamicLibNotFoundError
from numba import cuda
from numba.cuda import libdevice
from numba.cuda.core import config
from numba.cuda.core.errors import NumbaPerformanceWarning
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


class DeviceError(ValueError):
    """There is no GPU, or it cannot do what it was asked for."""


@contextmanager
def explained() -> Iterator[None]:
    """Raise DeviceError for what the driver, the compiler and the linker raise within; no warnings of small
    launches, which are meant."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NumbaPerformanceWarning)
            yield
    except DynamicLibNotFoundError as error:
        raise DeviceError(
            f"device: 'cuda' needs a library that is not installed ({_in_a_line(error)}): pip install "
            "'specsim-decoding[cuda]', or leave device out, to count on the CPU"
        ) from error
    except (CudaAPIError, LinkerError, ImportError) as error:  # also where there is no driver
        raise DeviceError(
            f"device: 'cuda' cannot be used here ({_in_a_line(error)}); leave device out, to count on the CPU"
        ) from error


def _in_a_line(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(" :.")


def current_device() -> tuple[str, int, float]:
    """The name of the current GPU, the number of its multiprocessors, and its free bytes.

    Raises DeviceError if there is none."""
    with explained():
        context = cuda.current_context()
        free = context.get_memory_info().free
    if SIMULATED:
        return "simulated GPU", 1, free
    name = context.device.name
    return name.decode() if isinstance(name, bytes) else name, context.device.MULTIPROCESSOR_COUNT, free
