"""Compile the kernels that count steps and those that verify rows, as on a GPU of compute capability 9.0.

Prints, as JSON, how many instructions of double precision the machine code of the first has, by name, and for
each rule whether the code of the row kernel has operations that are fused, or may be. Arguments are the rules; all
that a GPU verifies by default.

Neither a GPU nor a driver is needed, only the compiler and the linker that the extra cuda installs."""

import json
import struct
import sys
from collections import Counter
from types import SimpleNamespace

import numba.cuda.dispatcher
from cuda.core import Linker, LinkerOptions, ObjectCode
from numba import cuda, types

from specsim import rules
from specsim.core import _cuda
from specsim.core._types import Ints
from specsim.rules._common.fixed_pairs import PairTables
from specsim.simulation._cuda import counting, rows, steps

FLOATS, INTS = types.float64[::1], types.int64[::1]
PAIR = [INTS if kind == Ints else FLOATS for kind in PairTables.__annotations__.values()]
TABLES = {
    steps.integer_step: (types.int64[:, ::1], types.int64[:, ::1]),
    steps.block_step: (*PAIR, INTS, FLOATS, FLOATS),
}
MATRICES = types.float64[:, :, ::1]
ROWS = (
    *2 * [types.int64[:, ::1]], MATRICES, MATRICES, types.float64[:, ::1], FLOATS, types.int32[:, ::1], INTS,
)  # fmt: skip
NUMBERS = types.uint32, types.uint32, types.int64, types.int64
GAMMA, CAPABILITY = 5, (9, 0)
#: The low nine bits of an instruction, of 128 bits since compute capability 7.0; the others say what it
#: works on.
CODES = {0x28: "DMUL", 0x29: "DADD", 0x2A: "DSETP", 0x2B: "DFMA"}


def compiled(kernel, *arguments):
    """The PTX of a kernel for arguments of these types."""
    return cuda.compile(kernel.py_func, arguments, device=False, cc=CAPABILITY, output="ptx", abi="numba")[0]


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
    # device functions are compiled for the current device
    numba.cuda.dispatcher.get_current_device = lambda: SimpleNamespace(compute_capability=CAPABILITY)
    found = {}
    for step, tables in TABLES.items():
        arguments = counting.counting_kernel(step, GAMMA), types.Tuple(tables), *NUMBERS, types.int64[:, ::1]
        with _cuda.exactly():
            exact = instructions(compiled(*arguments))
        found[step.__name__] = {"as it is": exact, "fused": instructions(compiled(*arguments))}
    having = [name for name in rules.names() if _cuda.inexact(rules.get(name).rows) is None]
    for name in sys.argv[1:] or having:
        arguments = rows.verifying_kernel(rules.get(name).rows), *NUMBERS, *ROWS
        try:
            with _cuda.exactly(allocates=True):
                compiled(*arguments)
            found[name] = False
        except _cuda.DeviceError:
            found[name] = True
    print(json.dumps(found))


if __name__ == "__main__":
    main()
