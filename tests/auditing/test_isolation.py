"""Verifiers given by name, in a process of their own: they may hang, crash, print, and be interrupted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from specsim.auditing import _execution as isolation
from specsim.auditing import audit
from specsim.auditing._execution import Child
from specsim.auditing._results import Verdict

pytestmark = pytest.mark.usefixtures("smaller_audits")

ROOT = Path(__file__).parents[2]

MODULE = '''
import contextlib, itertools, os, signal, time
import numpy as np
import verifiers

print("hello from the module")

# two-point and identical are the only cases
few = dict(vocab_size=4, dtypes="float32")

def plain(function):
    function.declared = few
    return function

def on_four_tokens(act):
    """Right, but where the vocabulary has four tokens."""
    def verify(draft_tokens, p, q, rng):
        if p.shape[2] == 4:
            act()
        return verifiers.right(draft_tokens, p.astype(float), q.astype(float), rng)
    return plain(verify)

def swallows():
    for _ in range(600):
        with contextlib.suppress(BaseException):
            time.sleep(0.1)

right = on_four_tokens(lambda: None)
crashes = on_four_tokens(lambda: os.kill(os.getpid(), signal.SIGSEGV))
exits = on_four_tokens(lambda: os._exit(7))
deaf = on_four_tokens(swallows)
in_c = on_four_tokens(lambda: sum(itertools.repeat(0, 10**12)))  # no signal is heard before the end
prints = on_four_tokens(lambda: print("hello from a call"))
raises = on_four_tokens(lambda: 1 / 0)

def sleeping(seconds):
    def verify(draft_tokens, p, q, rng):
        with open(__file__ + ".calls", "a") as calls:
            calls.write(".")
        time.sleep(seconds)
        return verifiers.right(draft_tokens, p.astype(float), q.astype(float), rng)
    verify.declared = dict(few, batch=1)
    return verify

slow, slower = sleeping(0.01), sleeping(0.02)

not_callable = 3
'''

CASES = ["promises", "two-point", "identical", "Markov chain"]
HIT = ["identical", "Markov chain"]  # of four tokens


@pytest.fixture(autouse=True)
def module(tmp_path, monkeypatch):
    (tmp_path / "theirs.py").write_text(MODULE)
    (tmp_path / "no_syntax.py").write_text("def verify(:")
    (tmp_path / "fails.py").write_text("raise RuntimeError('out of cheese')")
    (tmp_path / "dies.py").write_text("import os; os._exit(4)")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(isolation, "GRACE", 3.0)
    return tmp_path


def of(name, **more):
    return audit(f"theirs:{name}", "smoke", rng=1, diagnose=False, **more)


def failed(result):
    return [case.case for case in result.cases if case.findings]


def text(result):
    return "; ".join(finding.text for case in result.cases for finding in case.findings)


def test_a_verifier_by_name_gives_the_counts_that_it_gives_here_whatever_it_prints(capfd):
    there = of("prints")
    out = capfd.readouterr().out
    assert "hello from the module" in out
    assert "hello from a call" in out

    import theirs

    here = audit(theirs.right, "smoke", rng=1, diagnose=False)
    assert there.verdict is Verdict.CONSISTENT
    assert there.verifier == "theirs:prints"
    assert [case.case for case in there.cases] == CASES
    for one, other in zip(there.cases, here.cases, strict=True):
        assert one.to_dict() == other.to_dict()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("crashes", "ended its process (SIGSEGV)"),
        pytest.param("exits", "ended its process (exit code 7)", marks=pytest.mark.slow),
        pytest.param(
            "raises",
            "raised ZeroDivisionError: division by zero; a call of 1 row shows it",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_after_a_crash_the_other_cases_are_still_run(name, said):
    result = of(name)
    assert result.verdict is Verdict.BROKEN
    assert said in text(result)
    assert failed(result) == HIT
    fine = {case.case: case for case in result.cases}["two-point"]
    assert fine.steps == fine.planned


@pytest.mark.parametrize("name", ["deaf", pytest.param("in_c", marks=pytest.mark.slow)])
def test_a_call_that_hears_nothing_is_ended_from_outside(name, full):
    started = time.monotonic()
    both = full and name == "deaf"
    result = of(name, timeout=0.5, fail_fast=not both)
    assert time.monotonic() - started < 40
    assert result.verdict is Verdict.BROKEN
    assert failed(result) == (HIT if both else HIT[:1])
    assert "hung" in text(result)


def test_a_slow_verifier_is_not_taken_for_one_that_hangs(monkeypatch):
    """Its calls are short; all calls of the promises, 4 seconds, take longer than silence is allowed to."""
    import theirs

    # kernels are compiled here: that is silent too
    assert audit(theirs.right, "smoke", rng=1, diagnose=False).verdict is Verdict.CONSISTENT
    monkeypatch.setattr(isolation, "GRACE", 2.0)
    started = time.monotonic()
    result = of("slower", timeout=0.5, seconds=3.0)
    assert time.monotonic() - started > 2.5 + 3.0
    assert result.verdict is Verdict.CONSISTENT
    assert all(0 < case.steps < case.planned for case in result.cases if case.planned)


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("no_syntax:verify", "cannot import no_syntax \\(SyntaxError"),
        ("fails:verify", "cannot import fails \\(RuntimeError: out of cheese\\)"),
        ("dies:verify", "the import ended its process \\(exit code 4\\)"),
        ("theirs:nothing", "theirs has no function nothing"),
        ("theirs:not_callable", "theirs has no function not_callable"),
        ("nowhere:verify", "cannot import nowhere"),
    ],
)
def test_what_cannot_be_loaded_is_named(reference, said, full):
    load = audit if full or reference == "dies:verify" else isolation.load
    with pytest.raises(ValueError, match=said):
        load(reference)


# --- one child -------------------------------------------------------------------------------------------


def answers(subject, value, progress=None):
    return value


def dies(subject, progress=None):
    os._exit(3)


def refuses(subject, error, progress=None):
    raise error("not like this")


@pytest.fixture
def child():
    child = Child("theirs:right", 1.0)
    yield child
    child.close()


def test_a_child_that_died_between_jobs_breaks_one_job_and_is_replaced(child):
    assert child.run(answers, 5) == 5
    os.kill(child._process.pid, signal.SIGKILL)
    child._process.wait()
    with pytest.raises(isolation.BrokenVerifier, match=r"ended its process \(SIGKILL\)"):
        child.run(answers, 6)
    assert child.run(answers, 7) == 7


def test_what_a_job_refuses_is_raised_here(child):
    for error in (ValueError, isolation.BrokenVerifier):
        with pytest.raises(error, match="not like this"):
            child.run(refuses, error)
    assert child.run(answers, 1) == 1


def test_a_child_that_can_no_longer_be_loaded_is_broken(child, module):
    (module / "theirs.py").write_text("raise RuntimeError('gone')")
    with pytest.raises(isolation.BrokenVerifier, match="exit code 3"):
        child.run(dies)
    with pytest.raises(isolation.BrokenVerifier, match="gone"):
        child.run(answers, 1)


def test_an_interrupt_that_comes_too_late_for_its_job_ends_the_next(child):
    def interrupt(message):
        send(message)
        assert child._end.poll(60)  # the answer is there
        raise KeyboardInterrupt

    send, child._send = child._send, interrupt
    assert child.run(answers, 5) == 5
    with pytest.raises(KeyboardInterrupt):
        child.run(answers, 6)


def test_an_interrupted_start_leaves_no_process(monkeypatch):
    started = []

    def await_nothing(self, progress, patience):
        started.append(self._process)
        raise KeyboardInterrupt

    monkeypatch.setattr(Child, "_await", await_nothing)
    with pytest.raises(KeyboardInterrupt):
        Child("theirs:right", 1.0)
    assert started[0].returncode is not None


# --- Ctrl-C ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "calls", [pytest.param(0, marks=pytest.mark.slow), 400], ids=["at once", "in a case"]
)
def test_ctrl_c_prints_the_verdict_so_far_and_exits_with_3(module, calls):
    """A real interrupt, of parent and child alike as a terminal sends it."""
    command = [sys.executable, "-m", "specsim", "audit", "theirs:slow", "--level", "smoke", "--seed", "1"]
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests/helpers"), str(module)])
    process = subprocess.Popen(
        [*command, "--out", str(module / "out")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,
    )
    assert process.stdout.readline() == "hello from the module\n"
    seen = module / "theirs.py.calls"
    while calls and (not seen.exists() or seen.stat().st_size < calls):  # the promises take fewer
        assert process.poll() is None
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 3, err
    assert "Traceback" not in out + err
    if calls:
        assert "theirs:slow: consistent" in out
        assert json.loads((module / "out" / "audit.json").read_text())["interrupted"] is True
