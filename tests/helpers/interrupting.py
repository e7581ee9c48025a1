"""Tests that send interrupts, also where their own process ignores them, as behind `nohup` or in a background
job of a shell: what they start would ignore them too, and never end."""

import os
import signal
import struct
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def interrupts():
    """Within this, an interrupt raises KeyboardInterrupt here, and reaches the processes that are started."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def interruptible(command, **options):
    """A process that hears interrupts, in a group of its own; what is left of the group is killed."""
    with interrupts():
        started = subprocess.Popen(command, text=True, start_new_session=True, **options)
    with started as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def ends(pid):
    """Whether this process, which need not be a child of ours, ends within 5 seconds."""
    state = Path(f"/proc/{pid}/stat")
    with suppress(FileNotFoundError, ProcessLookupError):  # gone, or gone while it was read
        for _ in range(100):
            if state.read_text().rpartition(")")[2].split()[0] == "Z":
                return True
            time.sleep(0.05)
        return False
    return True


def writes_half_a_result(marker):
    """Sends the length of a result to the pool, and nothing of the result."""
    frame = sys._getframe()
    while "result_queue" not in frame.f_locals:
        frame = frame.f_back
    frame.f_locals["result_queue"]._writer._send(struct.pack("!i", 1000))
    marker.touch()
    time.sleep(600)
