"""Kernels of many rules are compiled in processes, and found there."""

import os
import subprocess
import sys
import time

import numba
import numpy as np
import pytest

from specsim.core import _kernels
from specsim.models import Pair, TableModel
from specsim.models._trained_pairs import default_pair
from specsim.rules import get, names
from specsim.simulation import _grid as _compiling
from specsim.simulation._grid import compile_rules, compiling
from specsim.traces import default_trace

PAIR = Pair(np.array([0.5, 0.5]), np.array([0.5, 0.5]))
RULES = [*map(get, ("standard", "naive_matching", "lenience", "block"))]
COUNTED = """
import numba.core.dispatcher as dispatcher
made = []
compiled = dispatcher._FunctionCompiler._compile_core
def count(self, *types):
    made.append(self.py_func.__qualname__)
    return compiled(self, *types)
dispatcher._FunctionCompiler._compile_core = count
import specsim
for pair in ([0.5, 0.3, 0.2], [0.2, 0.3, 0.5]), specsim.read_pair("ngram"):
    specsim.compare(*pair, rules=["standard", "block"], steps=100, threads=1)
print(made)
"""


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """An empty folder for kernels."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(numba.config, "DISABLE_JIT", False)
    return tmp_path / "kernels"


def test_the_kind_of_a_pair(kept, monkeypatch):
    asked = []
    monkeypatch.setattr(_compiling, "kept_mark", asked.append)
    rows = np.full((3, 2), 0.5)
    few = Pair(TableModel(rows[:2]), TableModel(rows[:2]))
    for pair in (PAIR, few, Pair(rows, rows), Pair(*default_pair()), Pair(default_trace())):
        with compiling(RULES[:1], pair):
            pass
    assert asked == [f"{kind} standard" for kind in ("fixed pair", "few contexts", "rows", "rows", "rows")]


def test_the_rules_that_are_started_for(kept, monkeypatch):
    started = []
    monkeypatch.setattr(_compiling, "Popen", lambda *_, **__: started.append(1) or pytest.fail("a process"))
    for rules, threads in ((RULES[: _compiling.FEWEST - 1], 2), (RULES, 1), (RULES, 2)):
        with compiling(rules, PAIR, threads) as ran:
            for one in rules:
                ran(one.name)
    assert not started


def test_processes_are_asked_for_the_last_rules_that_did_not_run(kept, monkeypatch):
    echo = "import sys\nfor line in sys.stdin: print(line, end='', flush=True)"
    monkeypatch.setattr(_compiling, "calling", lambda *_: [sys.executable, "-c", echo])
    last = _kernels.kept_mark(f"fixed pair {RULES[0].name}")
    with compiling(RULES, PAIR, threads=2) as ran:
        for one in RULES[1:3]:
            ran(one.name)
        end = time.monotonic() + 60.0
        while not last.exists() and time.monotonic() < end:
            time.sleep(0.1)
    assert all(_kernels.kept_mark(f"fixed pair {one.name}").exists() for one in RULES)


def test_a_mark_is_of_one_kind_of_pair_and_one_rule(kept):
    marks = {_kernels.kept_mark(f"{kind} {name}") for kind in _compiling.KINDS for name in names()}
    assert len(marks) == len(_compiling.KINDS) * len(names())
    assert {mark.parent for mark in marks} == {kept}


def test_nothing_is_marked_where_nothing_is_compiled(kept, monkeypatch):
    monkeypatch.setattr(numba.config, "DISABLE_JIT", True)
    assert _kernels.kept_mark("anything") is None


def test_a_process_that_ends_leaves_its_rules_to_the_run(kept, monkeypatch):
    monkeypatch.setattr(_compiling, "calling", lambda *_: [sys.executable, "-c", "pass"])
    with compiling(RULES, PAIR, threads=2):
        pass
    assert not [one for one in RULES if _kernels.kept_mark(f"fixed pair {one.name}").exists()]


@pytest.mark.slow
def test_a_run_finds_what_the_processes_compiled(kept, monkeypatch):
    monkeypatch.setattr(_compiling, "names", lambda: [one.name for one in RULES])
    for kind in _compiling.KINDS:
        compile_rules(kind, threads=2)
    assert all(
        _kernels.kept_mark(f"{kind} {one.name}").exists() for kind in _compiling.KINDS for one in RULES
    )
    ran = subprocess.run([sys.executable, "-c", COUNTED], capture_output=True, text=True, env=os.environ)
    assert ran.stdout.strip() == "[]", ran.stdout + ran.stderr
