"""Kernels of many rules are compiled in processes, and found there."""

import os
import subprocess
import sys

import numba
import numpy as np
import pytest

from specsim.core import _kernels
from specsim.models import Pair
from specsim.models._trained_pairs import default_pair
from specsim.rules import get, names
from specsim.simulation import _compiling
from specsim.simulation._compiling import FIXED, ROWS, compile_rules, kind_of
from specsim.traces import default_trace

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


def test_the_kind_of_a_pair():
    assert kind_of(Pair(np.array([0.5, 0.5]), np.array([0.5, 0.5]))) == FIXED
    assert kind_of(Pair(np.full((3, 2), 0.5), np.full((3, 2), 0.5))) == ROWS
    assert kind_of(Pair(*default_pair())) == kind_of(Pair(default_trace())) == ROWS


def test_the_rules_that_are_started_for(kept, monkeypatch):
    started = []
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: started.append(1) or pytest.fail("a process"))
    compile_rules(RULES[: _compiling.FEWEST - 1], FIXED, threads=2)
    compile_rules(RULES, FIXED, threads=1)
    for one in RULES:
        _kernels.kept_mark(f"{FIXED} {one.name}").touch()
    compile_rules(RULES, FIXED, threads=2)
    assert not started


def test_a_mark_is_of_one_kind_of_pair_and_one_rule(kept):
    marks = {_kernels.kept_mark(f"{kind} {name}") for kind in _compiling.KINDS for name in names()}
    assert len(marks) == 2 * len(names())
    assert {mark.parent for mark in marks} == {kept}


def test_nothing_is_marked_where_nothing_is_compiled(kept, monkeypatch):
    monkeypatch.setattr(numba.config, "DISABLE_JIT", True)
    assert _kernels.kept_mark("anything") is None


def test_a_process_that_ends_leaves_its_rules_to_the_run(kept, monkeypatch):
    monkeypatch.setattr(_compiling, "calling", lambda *_: [sys.executable, "-c", "pass"])
    told = []
    compile_rules(RULES, FIXED, threads=2, progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (4, 4)
    assert not [one for one in RULES if _kernels.kept_mark(f"{FIXED} {one.name}").exists()]


@pytest.mark.slow
def test_a_run_finds_what_the_processes_compiled(kept):
    for kind in _compiling.KINDS:
        compile_rules(RULES, kind, threads=2)
    assert all(
        _kernels.kept_mark(f"{kind} {one.name}").exists() for kind in _compiling.KINDS for one in RULES
    )
    ran = subprocess.run([sys.executable, "-c", COUNTED], capture_output=True, text=True, env=os.environ)
    assert ran.stdout.strip() == "[]", ran.stdout + ran.stderr
