"""Run tasks in forked processes, each with a watchdog, and add up what went wrong.

A block is a process that does one task after the other. It tells its parent when it begins one and what came
of it, so the parent knows what hung or crashed, and begins the next block behind that."""

import contextlib
import json
import os
import resource
import select
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from importlib import import_module

#: Seconds after which a task hangs, on a machine with a core for each process that runs.
PATIENCE = 30.0
#: Seconds for the files that the tasks of a process share.
PREPARATION = 300.0
#: Tasks of a process.
BLOCK = 100
#: Bytes that a process may map: of what would eat the machine's memory, Python reports a lack.
MEMORY = 6 * 2**30
#: Faults that are printed of each kind of task.
SHOWN = 60
#: Kinds of faults, as they are printed.
WRONG, TRACEBACK, HANG = "wrong numbers", "tracebacks", "hangs"


@dataclass
class Tally:
    """What was tried, and what of it failed."""

    name: str
    tried: int = 0
    faults: Counter = field(default_factory=Counter)
    outcomes: Counter = field(default_factory=Counter)
    seconds: float = 0.0

    def fault(self, kind, what):
        self.faults[kind] += 1
        if sum(self.faults.values()) <= SHOWN:
            print(f"  {self.name}: {kind}: {what}", flush=True)

    def line(self):
        shown = ", ".join(f"{self.faults[kind]} {kind}" for kind in (WRONG, TRACEBACK, HANG))
        ways = ", ".join(f"{number:,} {way}" for way, number in sorted(self.outcomes.items()))
        return f"{self.name:<16} {self.tried:>6,} tried: {shown}  ({ways}; {self.seconds:.0f} s)"


def run_kind(kind, number, seed):
    """The tallies of a kind, which `run_KIND` of its file gives: one or more."""
    file = {"commands": "command_lines", "writers": "surroundings"}.get(kind, kind)
    found = getattr(import_module(file), f"run_{kind}")(number, seed)
    return [found] if isinstance(found, Tally) else [*found]


def in_blocks(name, tasks, act, describe, prepare=lambda: None):
    """A tally of `act(task)` for all `tasks`.

    `act` returns how the task ended, a word, and None or (kind of fault, what). `prepare` is called at the
    beginning of every block, in an empty folder of its own."""
    tally, started, first = Tally(name), time.perf_counter(), 0
    while first < len(tasks):
        first = _block(tally, tasks, first, min(first + BLOCK, len(tasks)), act, describe, prepare)
        if sys.stderr.isatty():
            said = f"{name}: {first:,} of {len(tasks):,}, {sum(tally.faults.values())} faults"
            print(f"\r{said}", end="" if first < len(tasks) else "\n", file=sys.stderr)
    tally.seconds = time.perf_counter() - started
    return tally


def _block(tally, tasks, first, end, act, describe, prepare):
    """Do tasks from `first` to `end` in a process; returns the first task that was not begun."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            with contextlib.suppress(BaseException):
                _work(writing, folder, tasks[first:end], act, prepare)
            os._exit(0)
        os.close(writing)
        done = _watch(tally, reading, tasks, first, end, describe)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reading)
    return done


def _work(writing, folder, tasks, act, prepare):
    os.setpgid(0, 0)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    os.chdir(folder)

    def tell(*values):
        os.write(writing, (json.dumps(values) + "\n").encode())

    try:
        prepare()
    except BaseException:
        tell("failed", traceback.format_exc())
        raise
    tell("prepared")
    for task in tasks:
        tell("begins")
        try:
            way, fault = act(task)
        except BaseException:
            way, fault = "died", (TRACEBACK, traceback.format_exc()[-2000:])
        tell("ends", way, fault)


def _watch(tally, reading, tasks, first, end, describe):
    at, pending, finished, patience = first - 1, b"", True, PREPARATION
    while True:
        busy = os.getloadavg()[0] / (os.cpu_count() or 1)  # others may keep the machine busy
        ready, _, _ = select.select([reading], [], [], patience * max(1.0, busy))
        part = os.read(reading, 2**16) if ready else b""
        if not part:  # it hangs, or has ended
            if at < first:
                raise RuntimeError(f"{tally.name}: a block did not begin")
            if not ready or at + 1 < end or not finished:
                what = "did not end" if not ready else "the process ended"
                tally.fault(TRACEBACK if ready else HANG, f"{describe(tasks[at])}: {what}")
                tally.outcomes["hung" if not ready else "crashed"] += 1
            return at + 1
        *lines, pending = (pending + part).split(b"\n")
        for line in lines:
            said = json.loads(line)
            if said[0] == "failed":
                raise RuntimeError(f"{tally.name}: {said[1]}")
            if said[0] == "prepared":
                patience = PATIENCE
                continue
            if said[0] == "begins":
                at, finished = at + 1, False
                tally.tried += 1
                continue
            finished = True
            tally.outcomes[said[1]] += 1
            if said[2] is not None:
                tally.fault(said[2][0], f"{describe(tasks[at])}: {said[2][1]}")
        if at + 1 == end and finished:
            return end
