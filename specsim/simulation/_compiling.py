"""Compile the kernels of many rules before a run, in as many processes as there are cores.

numba compiles on one core of a process. Each process keeps what it compiles on disk, see
`specsim.core._kernels`, where this one finds it."""

import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from queue import SimpleQueue

import numpy as np

from specsim.core._kernels import available_threads, kept_mark
from specsim.core._processes import calling
from specsim.core._progress import ShowProgress, working
from specsim.core.distributions import synthetic_pair
from specsim.models import Model, Pair
from specsim.models._trained_pairs import default_pair
from specsim.rules import Rule, get, names
from specsim.simulation._grid import draft_for
from specsim.simulation._simulate import simulate
from specsim.traces._reader import Trace

#: Fewer rules are compiled sooner than processes start.
FEWEST = 4
KINDS = FIXED, ROWS = "fixed pair", "rows"


def kind_of(pair: Pair) -> str:
    """Which kernels of a rule a pair needs."""
    rows = isinstance(pair.target, Model | Trace) or np.ndim(pair.target) > 1
    return ROWS if rows else FIXED


def compile_rules(
    rules: Sequence[Rule], kind: str, threads: int | None = None, progress: ShowProgress = None
) -> None:
    """Compile what is not on disk yet of built-in `rules` for a `kind` of pair, if it is worth processes."""
    marks = {one.name: kept_mark(f"{kind} {one.name}") for one in rules if one.name in names()}
    missing = {name: mark for name, mark in marks.items() if mark is not None and not mark.exists()}
    processes = min(available_threads(threads), len(missing))
    if len(missing) < FEWEST or processes < 2 or not sys.executable:
        return
    command = calling(_compile_asked, kind)
    silent = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    children = [subprocess.Popen(command, text=True, bufsize=1, **silent) for _ in range(processes)]  # type: ignore[call-overload]
    idle: SimpleQueue[subprocess.Popen[str]] = SimpleQueue()
    for child in children:
        idle.put(child)

    def ask(name: str) -> None:
        child = idle.get()
        assert child.stdout is not None
        try:
            print(name, file=child.stdin)
            if child.stdout.readline():
                missing[name].touch(mode=0o600)
        except OSError:
            pass  # it has ended: the run compiles this rule itself
        finally:
            idle.put(child)

    with working(progress, "compile", " rules") as work, ThreadPoolExecutor(processes) as pool:
        try:
            asked = [pool.submit(ask, name) for name in missing]
            for done, one in enumerate(as_completed(asked), 1):
                one.result()
                work.report(done, len(asked))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            for child in children:
                child.kill()
                child.communicate()


def _compile_asked(kind: str) -> None:
    """Compile each rule named on standard input, and answer with its name. In a process of its own."""
    pair = Pair(*(default_pair() if kind == ROWS else synthetic_pair("zipf", 8, 0.5, rng=0)))
    for line in sys.stdin:
        rule = get(line.strip())
        simulate(pair, rule=rule, gamma=draft_for(rule, 2, 2), steps=1000, rng=0, threads=1)
        print(rule.name, flush=True)
