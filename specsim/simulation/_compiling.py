"""Compile the kernels of many rules before a run, in processes, since numba uses one core of each."""

import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from subprocess import DEVNULL, PIPE, Popen

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
KINDS = ROWS, FIXED = "rows", "fixed pair"


def compile_rules(
    rules: Sequence[Rule], pair: Pair | str, threads: int | None = None, progress: ShowProgress = None
) -> None:
    """Compile what is not on disk yet of built-in `rules` for a pair, or a kind, if it is worth processes."""
    if isinstance(pair, Pair):
        pair = ROWS if isinstance(pair.target, Model | Trace) or np.ndim(pair.target) > 1 else FIXED
    marks = {one.name: kept_mark(f"{pair} {one.name}") for one in rules if one.name in names()}
    missing = {name: mark for name, mark in marks.items() if mark is not None and not mark.exists()}
    processes = min(available_threads(threads), len(missing))
    if len(missing) < FEWEST or processes < 2 or not sys.executable:
        return
    waiting, compiled = iter(missing.items()), []
    command, pipes = calling(_compile_asked, pair), {"stdin": PIPE, "stdout": PIPE, "stderr": DEVNULL}
    children = [Popen(command, text=True, bufsize=1, **pipes) for _ in range(processes)]  # type: ignore[call-overload]

    def ask(child: "Popen[str]") -> None:
        assert child.stdout is not None
        with suppress(OSError), child:  # one that has ended leaves the rules to the run
            for name, mark in waiting:
                print(name, file=child.stdin)
                if child.stdout.readline():
                    mark.touch(mode=0o600)
                compiled.append(name)
                work.report(len(compiled), len(missing))

    with working(progress, "compile", " rules") as work, ThreadPoolExecutor(processes) as pool:
        try:
            list(pool.map(ask, children))
        finally:
            for child in children:
                child.kill()


def _compile_asked(kind: str) -> None:
    """Compile each rule named on standard input, and answer with its name."""
    pair = Pair(*(default_pair() if kind == ROWS else synthetic_pair("zipf", 8, 0.5, rng=0)))
    for line in sys.stdin:
        rule = get(line.strip())
        simulate(pair, rule=rule, gamma=draft_for(rule, 2, 2), steps=1000, rng=0, threads=1)
        print(rule.name, flush=True)
