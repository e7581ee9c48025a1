"""A log ten times larger than the memory that its reader may take, read in that memory."""

import resource
import subprocess
import sys

import numpy as np
import pytest

from specsim.traces import writer

VOCAB, GAMMA = 8192, 1

READER = """
import resource, sys, threading
import specsim
from specsim.traces import summarise

small, large, allowed = sys.argv[1], sys.argv[2], int(sys.argv[3])
threading.stack_size(2**20)  # else the stacks of two threads, 8 MB each, are more than is allowed
summarise(specsim.open_trace(small))  # loads and compiles all that is needed
used = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmData"))
resource.setrlimit(resource.RLIMIT_DATA, (1024 * used + allowed,) * 2)
print(summarise(specsim.open_trace(large)).num_steps)
try:
    open(large + "/shard-00000.safetensors", "rb").read() * 4
except MemoryError:
    print("the limit is one")
"""


def log(folder, size, dtype):
    """A trace of about `size` bytes."""
    rows = np.random.default_rng(0).dirichlet(np.full(VOCAB, 0.5), size=(8, 2)).astype(dtype)
    steps = size // (2 * (GAMMA + 1) * VOCAB * rows.itemsize)
    with writer(folder, vocab_size=VOCAB, gamma=GAMMA, dtype=dtype) as trace:
        for step in range(steps):
            p, q = rows[step % 8], rows[(step + 1) % 8]
            trace.append(0, [int(q[0].argmax())], 1, p, q)
    return steps


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the limit is Linux's")
@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_log_ten_times_larger_than_the_memory_is_read_in_that_memory(dtype, tmp_path):
    assert hasattr(resource, "RLIMIT_DATA")
    allowed = 24 * 2**20
    log(tmp_path / "small", 2**20, dtype)
    steps = log(tmp_path / "large", 10 * allowed, dtype)
    command = [sys.executable, "-c", READER, str(tmp_path / "small"), str(tmp_path / "large"), str(allowed)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert found.stdout.splitlines() == [str(steps), "the limit is one"]
