"""The one place where numba's CUDA target is imported; it needs the extra `cuda`.

Device code must compute what kernels compute on the CPU, to the last bit. By default, compilers for GPUs
contract x·y + z to one fused multiply-add, which rounds once instead of twice. numba-cuda has no option for
that, so `exactly()` hands one to its compiler, and searches the compiled code for such operations. `fastmath`
is never used.

A `Kernel` that device code calls is compiled for the device too. What it computes there is the same, unless
it uses what `inexact` looks for."""

import dis
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any

import numba_cuda  # noqa: F401  # without it numba has a target of its own, which is not maintained
import numpy as np
from cuda.pathfinder import DynamicLibNotFoundError
from numba import cuda
from numba.cuda.core import config
from numba.cuda.core.errors import NumbaPerformanceWarning
from numba.cuda.cudadrv import nvvm
from numba.cuda.cudadrv.driver import CudaAPIError, LinkerError

from specsim.core._kernels import Kernel, interpreted
from specsim.core._tables import installing

#: Whether kernels run in numba's simulator, as Python, with NUMBA_ENABLE_CUDASIM=1.
SIMULATED = bool(config.ENABLE_CUDASIM)

#: Functions whose last bits differ between a GPU and a CPU, or which numba has for the CPU alone.
INEXACT = {"log": "logarithms", "log1p": "logarithms", "exp": "exponentials", "argsort": "sorting"}
#: In PTX: what is fused, or may be since it does not name its rounding.
_FUSED = re.compile(rb"\b(?:fma|mad)\.\S*f(?:32|64)|\b(?:mul|add|sub)\.f(?:32|64)\b")
#: What can be done without a GPU.
WITHOUT = "leave device out, to count on the CPU"


class DeviceError(ValueError):
    """There is no GPU, or it cannot do what it was asked for."""


@contextmanager
def explained(allocates: bool = False) -> Iterator[None]:
    """Raise DeviceError for what the driver, the compiler or the linker raises; allow small launches."""
    try:
        with warnings.catch_warnings(), nullcontext() if SIMULATED else exactly(allocates):
            warnings.simplefilter("ignore", NumbaPerformanceWarning)
            yield
    except DynamicLibNotFoundError as error:
        what = f"'cuda' needs a library that is not installed ({_in_a_line(error)}): {installing('cuda')}"
        raise DeviceError(f"device: {what}, or {WITHOUT}") from error
    except (CudaAPIError, LinkerError, ImportError) as error:  # also where there is no driver
        raise DeviceError(f"device: 'cuda' cannot be used here ({_in_a_line(error)}); {WITHOUT}") from error
    except AttributeError as error:  # what numba-cuda takes from NumPy, and NumPy no longer has
        if error.obj is not np:
            raise
        what = f"the installed numba-cuda cannot use NumPy {np.__version__} ({_in_a_line(error)})"
        raise DeviceError(f"device: {what}; {installing('cuda')}, or {WITHOUT}") from error


def _in_a_line(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(" :.")


def current_device() -> tuple[str, int, float]:
    """Name, number of multiprocessors and free bytes of the current GPU. Raises DeviceError without one."""
    with explained():
        context = cuda.current_context()
        free = context.get_memory_info().free
    if SIMULATED:
        return "simulated GPU", 1, free
    name = context.device.name
    return name.decode() if isinstance(name, bytes) else name, context.device.MULTIPROCESSOR_COUNT, free


@contextmanager
def exactly(allocates: bool = False) -> Iterator[None]:
    """Within this, numba-cuda compiles without contraction, and counts references to arrays with `allocates`.
    Raises DeviceError for code that may still round a product with a sum at once."""

    def compile_exactly(*code: Any, **options: Any) -> bytes:
        ptx: bytes = compile_ir(*code, **options, fma=False)
        if _FUSED.search(ptx):
            what = "the installed numba-cuda fuses products with sums, so that counts could differ from those"
            raise DeviceError(f"device: {what} of the CPU; install another version, or {WITHOUT}")
        return ptx

    compile_ir, counts = nvvm.compile_ir, config.CUDA_ENABLE_NRT
    nvvm.compile_ir, config.CUDA_ENABLE_NRT = compile_exactly, allocates
    try:
        yield
    finally:
        nvvm.compile_ir, config.CUDA_ENABLE_NRT = compile_ir, counts


@cache
def device_function(kernel: Kernel) -> Any:
    """The kernel as a function that device code calls, which calls the kernels that it calls."""
    if SIMULATED:

        def run(*arguments: Any) -> Any:
            with interpreted():
                return kernel.plain(*arguments)

        return run
    _teach_numba_cuda_about_kernels()
    return cuda.jit(kernel.plain, device=True)


@cache
def _teach_numba_cuda_about_kernels() -> None:
    """Let device code call a kernel: to numba-cuda, a `Kernel` is its device function."""
    from numba.cuda import types
    from numba.cuda.extending import typeof_impl

    @typeof_impl.register(Kernel)
    def typeof_kernel(value: Kernel, context: Any) -> Any:
        return types.Dispatcher(device_function(value))


def inexact(kernel: Kernel) -> str | None:
    """What the kernel, or one that it calls, uses that a GPU computes otherwise; None if it is exact."""
    found = [kernel]
    for part in found:  # grows while it is read
        for step in dis.get_instructions(part.plain):
            if step.opname.startswith("BINARY") and step.argrepr in ("**", "**="):
                return "powers"
            own = step.opname == "LOAD_GLOBAL" and isinstance(part.plain.__globals__.get(step.argval), Kernel)
            if step.argval in INEXACT and step.opname.startswith("LOAD") and not own:
                return INEXACT[step.argval]
        found += [called for called in part.calls if called not in found]
    return None


def heap(wanted: int) -> int:
    """The bytes that kernels can allocate at once: `wanted`, if none of this process has allocated before."""
    if SIMULATED:
        return wanted
    from cuda.bindings import driver

    limit = driver.CUlimit.CU_LIMIT_MALLOC_HEAP_SIZE
    driver.cuCtxSetLimit(limit, wanted)  # refused later, when it does no harm
    return int(driver.cuCtxGetLimit(limit)[1])
