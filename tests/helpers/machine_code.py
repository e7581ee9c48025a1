"""Compile the kernels that count steps, as on a GPU of compute capability 9.0, and print how many instructions
of double precision their machine code has, by name.

Neither a GPU nor a driver is needed, only the compiler and the linker that the extra cuda installs. Ends with
77 if they are not there.
"""

import json
import struct
import sys
from collections import Counter
from types import SimpleNamespace

import numba.cuda.dispatcher
from cuda.core import Linker, LinkerOptions, ObjectCode
from cuda.pathfinder import DynamicLibNotFoundError, load_nvidia_dynamic_lib
from numba import cuda, types

from specsim.simulation._cuda import counting, steps

FLOATS, INTS = types.float64[::1], types.int64[::1]
TABLES = {
    steps.tokenwise_step: (INTS, INTS, types.float64[:, ::1]),
    steps.block_step: (INTS, FLOATS, FLOATS, INTS, FLOATS, INTS, FLOATS, FLOATS),
}
GAMMA, CAPABILITY = 5, (9, 0)
#: The low nine bits of an instruction, of 128 bits since compute capability 7.0; the others say what it
#: works on.
CODES = {0x28: "DMUL", 0x29: "DADD", 0x2A: "DSETP", 0x2B: "DFMA"}


def compiled(step):
    """The PTX of the kernel that counts steps of this kind."""
    kernel = counting.counting_kernel(step, GAMMA)
    numbers = types.uint32, types.uint32, types.int64, types.int64, types.int64[:, ::1]
    signature = types.Tuple(TABLES[step]), *numbers
    return cuda.compile(kernel.py_func, signature, device=False, cc=CAPABILITY, output="ptx", abi="numba")[0]


def instructions(ptx):
    """How many there are of each of `CODES` in the machine code, an ELF file."""
    options = LinkerOptions(arch="sm_{}{}".format(*CAPABILITY))
    code = Linker(ObjectCode.from_ptx(ptx.encode()), options=options).link("cubin").code
    (table,) = struct.unpack_from("<Q", code, 0x28)
    count, names = struct.unpack_from("<HH", code, 0x3C)
    sections = [struct.unpack_from("<IIQQQQIIQQ", code, table + 64 * i) for i in range(count)]
    found = Counter()
    for name, _, _, _, start, size, *_ in sections:
        at = sections[names][4] + name
        if code[at:].startswith(b".text"):
            words = (struct.unpack_from("<Q", code, start + i)[0] & 0x1FF for i in range(0, size, 16))
            found.update(CODES[word] for word in words if word in CODES)
    return found


def main():
    for library in ("nvvm", "nvrtc", "nvJitLink"):
        load_nvidia_dynamic_lib(library)
    # device functions are compiled for the current device
    numba.cuda.dispatcher.get_current_device = lambda: SimpleNamespace(compute_capability=CAPABILITY)
    found = {}
    for step in TABLES:
        ptx = compiled(step)
        found[step.py_func.__name__] = {
            "as it is": instructions(ptx),
            "without named roundings": instructions(ptx.replace("mul.rn.f64", "mul.f64")),
        }
    print(json.dumps(found))


if __name__ == "__main__":
    try:
        main()
    except DynamicLibNotFoundError:
        print("needs numba-cuda's compiler: pip install 'specsim-decoding[cuda]'")
        sys.exit(77)
