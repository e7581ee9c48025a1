"""The one place where numba's CUDA target is imported; it needs the extra `cuda`.

Device code must compute what kernels compute on the CPU, to the last bit. Compilers for GPUs contract x·y + z
to one fused multiply-add, which rounds once instead of twice, and numba-cuda has no option against it. So
device code writes a product to which something is added, or from which something is subtracted, as
`product(x, y)`. `fastmath` is never used.
"""

from numba import config, cuda
from numba.cuda import libdevice

#: Whether kernels run in numba's simulator, as Python, with NUMBA_ENABLE_CUDASIM=1.
SIMULATED = bool(config.ENABLE_CUDASIM)  # type: ignore[attr-defined]  # set at run time

if SIMULATED:

    @cuda.jit(device=True)
    def product(x, y):
        return x * y

else:

    @cuda.jit(device=True)
    def product(x, y):
        """x·y, rounded: the compiler contracts no multiplication that names its rounding."""
        return libdevice.dmul_rn(x, y)


class NoDeviceError(ValueError):
    """There is no GPU that could be used."""


def open_device():
    """The context of the current GPU. Raises NoDeviceError with the reason if none can be used."""
    try:
        context = cuda.current_context()
    except Exception as error:  # the driver has many
        reason = " ".join(str(error).split()).rstrip(" :.")
        raise NoDeviceError(f"device: 'cuda' finds no NVIDIA GPU here ({reason}); leave device out, to count on the CPU") from error
    if not (SIMULATED or cuda.is_available()):
        raise NoDeviceError(
            "device: 'cuda' finds a GPU, but no compiler for it (libNVVM): pip install 'specsim-decoding[cuda]', or leave device out, to count on the CPU"
        )
    return context
